package tenure

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Debts are paid when the system answers again, the oldest first; those that have ended by
// themselves no more.
func TestDebts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 50 * time.Millisecond
		k := NewKeeper()
		defer k.Close()
		o := NewDebts(k, pause)
		var answers atomic.Bool
		var tries atomic.Int64
		var paid []int
		for i, last := range []time.Duration{time.Hour, time.Second, time.Hour, time.Hour} {
			o.Owe(time.Now().Add(last), func() bool {
				tries.Add(1)
				if answers.Load() {
					paid = append(paid, i)
				}
				return answers.Load()
			})
		}
		pass(time.Minute)
		if n := tries.Load(); n > 70 || n < 50 {
			t.Errorf("%d tries in a minute", n)
		}
		answers.Store(true)
		pass(2 * mostDebtPause)
		if want := []int{0, 2, 3}; !slices.Equal(paid, want) || o.Len() != 0 {
			t.Errorf("paid are %v, and %d are left; want %v", paid, o.Len(), want)
		}

		o.Owe(time.Now().Add(time.Hour), func() bool { return false })
		k.Close()
		if o.Len() != 0 {
			t.Errorf("%d are left after Close", o.Len())
		}
	})
}

// What is owed is bounded.
func TestDebtsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKeeper()
		defer k.Close()
		o := NewDebts(k, time.Second)
		for range mostDebts + 10 {
			o.Owe(time.Now().Add(time.Hour), func() bool { return false })
		}
		if o.Len() != mostDebts {
			t.Errorf("%d are kept", o.Len())
		}
	})
}
