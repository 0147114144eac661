package wallclock_test

import (
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/cacheguard/cacheguard/internal/wallclock"
)

// before returns the present time as it would have been read before the machine's clock was set by
// this number of seconds. It relies on the layout of time.Time: in a time with a reading of the
// monotonic clock, the seconds of the wall clock begin at bit 30 of the first word.
func before(t *testing.T, set int64) time.Time {
	now := time.Now()
	read := now
	*(*uint64)(unsafe.Pointer(&read)) -= uint64(set << 30)
	if read.Sub(now) != 0 || now.Round(0).Sub(read.Round(0)) != time.Duration(set)*time.Second {
		t.Skip("time.Time has another layout")
	}
	return read
}

func TestSetSince(t *testing.T) {
	for _, seconds := range []int64{0, 1, -1, 3600} {
		set := wallclock.SetSince(before(t, seconds))
		if off := set - time.Duration(seconds)*time.Second; off < -time.Second/4 ||
			off > time.Second/4 { // it may be set during the test
			t.Errorf("%v; the clock was set by %d s", set, seconds)
		}
	}
}

func TestCatchUp(t *testing.T) {
	for _, seconds := range []int64{-1, 0, 1} {
		began := time.Now()
		wallclock.CatchUp(before(t, seconds))
		if took := time.Since(began); seconds > 0 && took < 3*time.Second/4 {
			t.Errorf("after the clock was set by %d s it waited for %v", seconds, took)
		}
	}
}

func TestPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{-1, 0, 1, time.Hour} {
			began := time.Now()
			wallclock.Pass(d)
			if took := time.Since(began); took != max(d, 0) {
				t.Errorf("%v passed; want %v", took, d)
			}
		}
	})
}
