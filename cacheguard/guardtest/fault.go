package guardtest

import (
	"errors"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Fault is what loads of an Origin do instead of returning their value at once. The zero Fault does
// nothing. At most one of Err, Panic and Goexit is set; without any of them the load returns its
// value after all.
type Fault struct {
	// Match picks loads by their key; a bulk load is struck if one of its keys is picked. It is
	// called by the loads, by many at once, and may use the Origin. Default: every key.
	Match func(key string) bool

	// Times is how many loads are struck, a bulk load being one. Default 0: all of them.
	Times int

	// Takes is how long the load takes, after the gate. In a synctest bubble it is time on the fake
	// clock. The load ends before with its context's error if that ends, as a query does. Default
	// 0: no time.
	Takes time.Duration

	// IgnoreContext has the load go on, at the gate and in Takes, when its context has ended. A
	// Fleet in which it still runs when the test ends fails the test, so have it return before.
	IgnoreContext bool

	// Err is what the load fails with. With an error that is cacheguard.ErrNotFound or wraps it, a
	// bulk load leaves the keys that Match picks out of its map and succeeds.
	Err error

	// Panic is what the load panics with, unless it is nil.
	Panic any

	// Goexit has the load end its goroutine with runtime.Goexit, as t.FailNow does.
	Goexit bool
}

// wrong says what is wrong with the fault.
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

// plan is a fault of an origin and how often it has struck.
type plan struct {
	Fault
	struck int
	over   bool
}

// Inject has loads that begin from now on do what the fault says. Where several faults pick a load,
// only the one that was injected last strikes it: inject the rule first, then its exceptions. end
// takes the fault away again; calling it twice is fine.
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

// striking is the fault of a load of these keys. Match is called without the mutex.
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

// strikes reports whether the fault had not struck often enough yet, and counts.
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

// retire needs the mutex.
func (o *Origin[V]) retire(p *plan) {
	p.over = true
	o.plans = slices.DeleteFunc(o.plans, func(other *plan) bool { return other == p })
}
