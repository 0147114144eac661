package storetest

import (
	"errors"
	"fmt"

	"github.com/cacheguard/cacheguard/cacheguard"
)

var holdCases = []spec{
	{"renewal prolongs the lease", oneLoad, renewProlongs},
	{"renewal sets the remaining time", bounded, renewShortens},
	{"renewal when nobody has the lease", noLateFill, renewGone},
	{"renewal when another has the lease", noLateFill, renewOther},
	{"renewal with the wrong number", numbered, renewWrongNumber},
	{"renewal after an outcome", noLateFill, renewAfterOutcome},
	{"release frees the lease", releases, releaseFrees},
	{"release with any number", releases, releaseAnyNumber},
	{"release by another", oneLoad, releaseByAnother},
	{"release of nothing", repeatable, releaseOfNothing},
	{"release that is repeated", repeatable, releaseRepeated},
	{"release after an outcome", backsOff, releaseAfterOutcome},
}

func renewProlongs(e *env) {
	e.within(short, func(k cacheguard.Key) error {
		lead, err := e.a.Lease(e.ctx, k, cacheguard.LeaseAsk{Token: e.token(), TTL: short})
		h, err2 := e.b.Renew(e.ctx, k, lead.Grant, long)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if h != cacheguard.HoldingMine {
			return fmt.Errorf("the holder was told %s", holding(h))
		}
		e.pass(short)
		e.waiter(e.b, k, lead.Grant)
		e.stored(e.a, k, lead.Grant, e.frame(lead.Grant.Token, "v"))
		return nil
	})
}

func renewShortens(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	if h := e.renew(e.a, k, g, short); h != cacheguard.HoldingMine {
		e.Errorf("the holder was told %s; want %s", holding(h), holding(cacheguard.HoldingMine))
	}
	e.pass(short)
	e.leader(e.b, k)
	e.refused(e.a, k, g, cacheguard.FillOther)
}

func renewGone(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	e.invalidate(e.b, k)
	for range 2 { // a renewal doesn't create a lease
		if h := e.renew(e.a, k, g, long); h != cacheguard.HoldingGone {
			e.Errorf("after an invalidation the leader was told %s; want %s", holding(h),
				holding(cacheguard.HoldingGone))
		}
	}
	e.refused(e.a, k, g, cacheguard.FillGone)
	e.leader(e.b, k)
}

func renewOther(e *env) {
	k := e.key("k")
	old := e.leader(e.a, k)
	e.invalidate(e.b, k)
	g := e.leader(e.b, k)
	if h := e.renew(e.a, k, old, short); h != cacheguard.HoldingOther {
		e.Errorf("the former leader was told %s; want %s", holding(h),
			holding(cacheguard.HoldingOther))
	}
	e.pass(short)
	e.holds(k, g) // the lease still lasts as long as before
}

func renewWrongNumber(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	for range 2 {
		if h := e.renew(e.a, k, other(g), short); h == cacheguard.HoldingMine {
			e.Errorf("a renewal for another grant of the token was told %s", holding(h))
		}
	}
	e.pass(short)
	e.holds(k, g)
}

func renewAfterOutcome(e *env) {
	k := e.key("k")
	old := e.leader(e.a, k)
	e.invalidate(e.b, k)
	load, o := e.fails(k, long, long)
	for range 2 {
		if h := e.renew(e.a, k, old, short); h != cacheguard.HoldingGone {
			e.Errorf("a former leader was told %s; want %s", holding(h),
				holding(cacheguard.HoldingGone))
		}
	}
	e.pass(short)
	e.outcome(e.b, k, load, o, e.token())
}

func releaseFrees(e *env) {
	k := e.key("k")
	f := e.frame(e.token(), "stale")
	e.set(e.a, k, f)
	g := e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
	e.release(e.a, k, g.Token)
	e.value(k, f)
	if h := e.renew(e.a, k, g, long); h != cacheguard.HoldingGone {
		e.Errorf("after its release the leader was told %s; want %s", holding(h),
			holding(cacheguard.HoldingGone))
	}
	e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
}

// releaseAnyNumber tests a load that doesn't know the number of its grant, because the reply to its
// request was lost.
func releaseAnyNumber(e *env) {
	k := e.key("k")
	token := e.token()
	for range 3 {
		e.lead(e.a, k, cacheguard.LeaseAsk{Token: token})
		e.release(e.b, k, token)
		e.free(k)
	}
}

func releaseByAnother(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	e.release(e.b, k, e.token())
	e.release(e.b, k, cacheguard.ID{})
	e.holds(k, g)
	e.waiter(e.b, k, g)
}

func releaseOfNothing(e *env) {
	k := e.key("k")
	e.release(e.a, k, e.token())
	e.noValue(k)
	e.leader(e.a, k)
}

func releaseRepeated(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	e.release(e.a, k, g.Token)
	next := e.leader(e.b, k)
	e.release(e.a, k, g.Token)
	e.holds(k, next)
	f := e.frame(next.Token, "v")
	e.stored(e.b, k, next, f)
	e.release(e.b, k, next.Token)
	e.value(k, f)
}

// releaseAfterOutcome tests that a release leaves an outcome in place. An outcome is not a lease,
// and it keeps other loads from starting.
func releaseAfterOutcome(e *env) {
	k := e.key("k")
	load, o := e.fails(k, long, long)
	e.release(e.a, k, load)
	e.outcome(e.b, k, load, o, e.token())
}
