package lifetime

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Close tells those that run, waits for all of them and lets no other begin; only the first does
// anything.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, closed := New(), false
		var over atomic.Int32
		for range 3 {
			if !l.Go(func() {
				<-l.Closing.Done()
				time.Sleep(time.Second)
				over.Add(1)
			}) {
				t.Fatal("it may not begin")
			}
			synctest.Wait()
		}
		go func() {
			if !l.Close() {
				t.Error("another one was first")
			}
			closed = true
		}()
		synctest.Wait()
		if closed || l.Begin() || l.Go(func() { t.Error("begun after Close") }) || l.Close() {
			t.Error("Close doesn't wait, or something begins after it")
		}
		time.Sleep(time.Second)
		if synctest.Wait(); !closed || over.Load() != 3 {
			t.Errorf("closed: %v, after %d of 3", closed, over.Load())
		}
	})
}

// It is quiet while nothing runs, and again when the last one is over.
func TestQuiet(t *testing.T) {
	l := New()
	<-l.Quiet()
	for range 2 {
		if !l.Begin() {
			t.Fatal("one may not begin")
		}
	}
	quiet := l.Quiet()
	l.End()
	select {
	case <-quiet:
		t.Fatal("quiet while one runs")
	default:
	}
	l.End()
	<-quiet
	<-l.Quiet()
	l.Close()
}

// A pause ends early when it is closed.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		if began := time.Now(); !l.Sleep(time.Second) || time.Since(began) != time.Second {
			t.Errorf("slept for %v", time.Since(began))
		}
		time.AfterFunc(time.Second, func() { l.Close() })
		if began := time.Now(); l.Sleep(time.Hour) || time.Since(began) != time.Second {
			t.Errorf("slept for %v although it was closed", time.Since(began))
		}
	})
}
