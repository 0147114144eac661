package middleware

import (
	"testing"
	"testing/synctest"
	"time"
)

// If a handler has used up its time for its client, it loses its place when it waits again. The
// handler isn't held up while the place is given back, which may take long with a budget of the
// fleet. As long as the handler doesn't wait, it keeps the place.
func TestPlaceIsGivenBackBesideItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		given, store := 0, make(chan struct{})
		turns := &turns{most: 1}
		turns.give = turns.release
		p := turns.place(func() { given++; <-store })
		p.awaits()
		time.Sleep(slowClient - time.Millisecond)
		p.resumes()
		time.Sleep(time.Second)
		if p.left = 0; given != 0 {
			t.Error("it has lost its place although it waits no more")
		}
		p.awaits()
		time.Sleep(time.Nanosecond) // see arm
		synctest.Wait()
		if given != 1 {
			t.Errorf("given back %d times", given)
		}
		p.resumes()
		p.leave()
		close(store)
		if synctest.Wait(); given != 1 || turns.running != 0 {
			t.Errorf("given back %d times, and %d turns are taken", given, turns.running)
		}
	})
}
