package storetest

import (
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/wallclock"
)

var clockCases = []spec{
	{"clock is the same in each process", oneClock, clockAgrees},
	{"clock doesn't run backwards", oneClock, clockForwards},
	{"clock goes on", oneClock, clockGoesOn},
	{"clock comes between the grants before and after it", tokened, clockDivides},
}

// clockBound is the largest accepted difference between two estimates of the store's clock. It is
// large, because an estimate is only as good as the quickest reply from which it was made. On a
// busy machine perhaps no reply is quick.
const clockBound = time.Second

// estimate makes both stores measure the clock. They listen first, because a store may measure the
// clock anew when its messages begin to arrive.
func (e *env) estimate() {
	e.Helper()
	for _, s := range []cacheguard.Store{e.a, e.b} {
		e.listening(s)
		e.get(s, e.key("k"))
		e.leader(s, e.key("asked by "+e.token().String()))
	}
}

func clockAgrees(e *env) {
	e.estimate()
	for range 20 {
		before, there, after := e.a.Now(), e.b.Now(), e.a.Now()
		if there.Before(before.Add(-clockBound)) || there.After(after.Add(clockBound)) {
			e.Fatalf("the clock is %v in one process and %v in the other", before, there)
		}
	}
}

func clockForwards(e *env) {
	e.estimate()
	last := []time.Time{e.a.Now(), e.b.Now()}
	for i := range 500 {
		for j, s := range []cacheguard.Store{e.a, e.b} {
			if i%50 == 0 {
				e.get(s, e.key("k"))
				e.free(e.key("k"))
			}
			now := s.Now()
			if now.Before(last[j].Add(-100 * time.Millisecond)) {
				e.Fatalf("the clock ran from %v back to %v", last[j], now)
			}
			last[j] = now
		}
	}
}

func clockGoesOn(e *env) {
	if e.fleet.Advance != nil {
		e.Skipf("the fleet's clock runs only when it is told to")
	}
	const d = 100 * time.Millisecond
	e.estimate()
	began := []time.Time{e.a.Now(), e.b.Now()}
	e.pass(d)
	for i, s := range []cacheguard.Store{e.a, e.b} {
		if went := s.Now().Sub(began[i]); went < d/2 {
			e.Errorf("in %v the clock of process %d went on by %v", d, i, went)
		}
	}
}

// clockDivides tests that the time that a store returns is not earlier than the stamp of any
// earlier grant and not later than the stamp of any later grant, whichever process asks.
func clockDivides(e *env) {
	stores := []cacheguard.Store{e.a, e.b}
	for i := range 20 {
		began := time.Now()
		first := e.leader(stores[i%2], e.key("before "+e.token().String()))
		if i%5 == 4 {
			e.invalidateTags(stores[i/5%2], "t")
		}
		said, err := stores[i/2%2].Clock(e.ctx, e.cache)
		if err != nil {
			e.Fatalf("Clock: %v", err)
		}
		second := e.leader(stores[i/4%2], e.key("after "+e.token().String()))
		setBack := wallclock.SetSince(began) < -20*time.Microsecond
		if first.Stamp > said || second.Stamp < said && !setBack {
			e.Fatalf("the clock said %d between grants with the stamps %d and %d", said,
				first.Stamp, second.Stamp)
		}
	}
}
