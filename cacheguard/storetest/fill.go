package storetest

import (
	"github.com/cacheguard/cacheguard/cacheguard"
)

var fillCases = []spec{
	{"fill of an undisturbed load is stored", noLateFill, fillStored},
	{"fill ends the lease", releases, fillEndsLease},
	{"fill replaces what was seen", survivable, fillReplaces},
	{"fill with the wrong number", numbered, fillWrongNumber},
	{"fill of another's lease", noLateFill, fillOther},
	{"fill without a lease", noLateFill, fillNever},
	{"fill after an invalidation", noLateFill, fillAfterInvalidate},
	{"fill after an invalidation and a new load", noLateFill, fillAfterInvalidateAndLoad},
	{"fill after a claim", noLateFill, fillAfterClaim},
	{"fill after the lease expired", noLateFill, fillAfterExpiry},
	{"fill after a release", noLateFill, fillAfterRelease},
	{"fill after an outcome", noLateFill, fillAfterOutcome},
	{"fill that is repeated", repeatable, fillRepeated},
	{"fill that is repeated while the next one loads", repeatable, fillRepeatedLater},
	{"fill that is repeated after an invalidation", noLateFill, fillRepeatedAfterInvalidate},
}

func fillStored(e *env) {
	for _, filler := range []cacheguard.Store{e.a, e.b} {
		k := e.key("k")
		e.invalidate(e.a, k)
		g := e.leader(e.a, k)
		e.waiter(e.b, k, g)
		e.holds(k, g)
		f := e.frame(g.Token, "v")
		// A grant doesn't belong to the connection on which it was granted.
		e.stored(filler, k, g, f)
		e.value(k, f)
	}
}

func fillEndsLease(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	f := e.frame(g.Token, "v")
	e.stored(e.a, k, g, f)
	if h := e.renew(e.a, k, g, long); h != cacheguard.HoldingGone {
		e.Errorf("after its fill the leader was told %s; want %s", holding(h),
			holding(cacheguard.HoldingGone))
	}
	next := e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
	f = e.frame(next.Token, "next")
	e.stored(e.b, k, next, f)
	e.value(k, f)
}

func fillReplaces(e *env) {
	k := e.key("k")
	for _, junk := range []string{"", "x", "foreign value without any frame at all"} {
		e.set(e.b, k, []byte(junk))
		g := e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id([]byte(junk))})
		f := e.frame(g.Token, "v")
		e.stored(e.a, k, g, f)
		e.value(k, f)
	}
}

func fillWrongNumber(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	for _, number := range []int64{g.Number + 1, g.Number - 1, 0, -g.Number} {
		wrong := cacheguard.Grant{Token: g.Token, Number: number}
		if answer := e.fill(e.b, k, wrong,
			e.frame(g.Token, "late")); answer == cacheguard.FillStored {
			e.Errorf("a fill with number %d was stored under grant %d", number, g.Number)
		}
	}
	e.noValue(k)
	e.holds(k, g)
	f := e.frame(g.Token, "v")
	e.stored(e.a, k, g, f)
	e.value(k, f)
}

func fillOther(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	e.refused(e.b, k, cacheguard.Grant{Token: e.token(), Number: g.Number}, cacheguard.FillOther)
	e.noValue(k)
	e.holds(k, g)
}

func fillNever(e *env) {
	k := e.key("k")
	e.refused(e.a, k, cacheguard.Grant{Token: e.token(), Number: 1}, cacheguard.FillGone)
	e.refused(e.a, k, cacheguard.Grant{Token: e.token()}, cacheguard.FillGone)
	e.noValue(k)
}

func fillAfterInvalidate(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	e.waiter(e.b, k, g)
	e.invalidate(e.b, k)
	e.refused(e.a, k, g, cacheguard.FillGone)
	e.noValue(k)
}

func fillAfterInvalidateAndLoad(e *env) {
	k := e.key("k")
	old := e.leader(e.a, k)
	e.invalidate(e.a, k)
	// The second load is in the same process: a store must tell loads apart by their tokens, not by
	// their process.
	g := e.leader(e.a, k)
	e.refused(e.a, k, old, cacheguard.FillOther)
	e.noValue(k)
	e.holds(k, g)
	f := e.frame(g.Token, "new")
	e.stored(e.a, k, g, f)
	e.refused(e.a, k, old, cacheguard.FillGone)
	e.value(k, f)
}

func fillAfterClaim(e *env) {
	k := e.key("k")
	old := e.leader(e.a, k)
	g := e.claim(e.b, k, e.token())
	e.refused(e.a, k, old, cacheguard.FillOther)
	e.noValue(k)
	f := e.frame(g.Token, "written")
	e.stored(e.b, k, g, f)
	e.refused(e.a, k, old, cacheguard.FillGone)
	e.value(k, f)
}

func fillAfterExpiry(e *env) {
	k := e.key("k")
	old := e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), TTL: short})
	e.pass(short)
	e.refused(e.a, k, old, cacheguard.FillGone)
	e.noValue(k)
	g := e.leader(e.b, k)
	e.refused(e.a, k, old, cacheguard.FillOther)
	e.noValue(k)
	f := e.frame(g.Token, "new")
	e.stored(e.b, k, g, f)
	e.refused(e.a, k, old, cacheguard.FillGone)
	e.value(k, f)
}

func fillAfterRelease(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	e.release(e.a, k, g.Token)
	e.refused(e.a, k, g, cacheguard.FillGone)
	e.noValue(k)
}

func fillAfterOutcome(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	failed := cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "no"}
	e.conclude(e.a, k, g, failed, long, long)
	e.refused(e.a, k, g, cacheguard.FillGone)
	e.noValue(k)
	e.outcome(e.b, k, g.Token, failed, e.token())
}

func fillRepeated(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	f := e.frame(g.Token, "v")
	e.stored(e.a, k, g, f)
	e.stored(e.a, k, g, f)
	e.stored(e.b, k, g, f)
	e.value(k, f)
	e.free(k)
}

// fillRepeatedLater repeats a fill after its value has become stale and while another load
// refreshes the value.
func fillRepeatedLater(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	f := e.frame(g.Token, "v")
	e.stored(e.a, k, g, f)
	next := e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
	e.stored(e.a, k, g, f)
	e.value(k, f)
	e.holds(k, next)
	f = e.frame(next.Token, "next")
	e.stored(e.b, k, next, f)
	e.refused(e.a, k, g, cacheguard.FillGone) // its value is no longer stored, for whatever reason
	e.value(k, f)
}

func fillRepeatedAfterInvalidate(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	e.stored(e.a, k, g, e.frame(g.Token, "v"))
	e.invalidate(e.b, k)
	e.refused(e.a, k, g, cacheguard.FillGone)
	e.noValue(k)
}
