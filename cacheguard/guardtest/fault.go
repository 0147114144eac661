package guardtest

import (
	"errors"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Fault changes what loads of an [Origin] do. Without a fault they return their value at once. The
// zero Fault does nothing. Set at most one of Err, Panic and Goexit. If none of them is set, the
// load returns its value in the end.
type Fault struct {
	// Match selects loads by their key. A bulk load is affected if Match selects one of its keys.
	// Many loads may call Match at the same time, and Match may use the Origin. Default: every key.
	Match func(key string) bool

	// Times is the number of loads that are affected. A bulk load is one load. Default 0. Zero
	// affects all loads.
	Times int

	// Takes is how long the load takes, in addition to the time at the gate. In a synctest bubble
	// Takes is measured on the fake clock. If the load's context ends earlier, the load returns the
	// context's error, as a query does. Default 0: no time.
	Takes time.Duration

	// IgnoreContext makes the load continue after its context has ended, at the gate and during
	// Takes. If this load still runs in a [Fleet] when the test ends, the test fails, so let the
	// load return before that.
	IgnoreContext bool

	// Err is the error that the load returns. If Err is or wraps cacheguard.ErrNotFound, a bulk
	// load succeeds, and leaves the keys that Match selects out of its map.
	Err error

	// Panic is the value with which the load panics. If it is nil, the load doesn't panic.
	Panic any

	// Goexit makes the load end its goroutine with runtime.Goexit, as t.FailNow does.
	Goexit bool
}

// wrong returns an error if the fault is invalid.
func (f Fault) wrong() error {
	ends := 0
	for _, set := range []bool{f.Err != nil, f.Panic != nil, f.Goexit} {
		if set {
			ends++
		}
	}
	switch {
	case ends > 1:
		return errors.New("a Fault has more than one of Err, Panic and Goexit")
	case f.Times < 0:
		return errors.New("a Fault's Times is negative")
	case f.Takes < 0:
		return errors.New("a Fault's Takes is negative")
	}
	return nil
}

func (f Fault) picks(key string) bool { return f.Match == nil || f.Match(key) }

func (f Fault) notFound() bool { return errors.Is(f.Err, cacheguard.ErrNotFound) }

// plan is a fault of an origin, and the number of loads that it has affected.
type plan struct {
	Fault
	struck int
	over   bool
}

// Inject applies the fault to loads that begin from now on. If several faults select a load, only
// the one that was injected last affects it. So inject the general fault first, then its
// exceptions. end removes the fault. A second call of end does nothing.
func (o *Origin[V]) Inject(f Fault) (end func()) {
	o.tb.Helper()
	if err := f.wrong(); err != nil {
		o.tb.Fatalf("guardtest: Inject: %v", err)
	}
	p := &plan{Fault: f}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.plans = append(o.plans, p)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.retire(p)
	}
}

// striking returns the fault for a load of these keys. It calls Match without holding the mutex.
func (o *Origin[V]) striking(keys []string) Fault {
	o.mu.Lock()
	plans := slices.Clone(o.plans)
	o.mu.Unlock()
	for _, p := range slices.Backward(plans) {
		if slices.ContainsFunc(keys, p.picks) && o.strikes(p) {
			return p.Fault
		}
	}
	return Fault{}
}

// strikes reports whether the fault affects one more load. If it does, strikes counts the load.
func (o *Origin[V]) strikes(p *plan) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.over {
		return false
	}
	p.struck++
	if p.struck == p.Times {
		o.retire(p)
	}
	return true
}

// retire removes a fault. The caller holds the mutex.
func (o *Origin[V]) retire(p *plan) {
	p.over = true
	o.plans = slices.DeleteFunc(o.plans, func(other *plan) bool { return other == p })
}
