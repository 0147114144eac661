package storetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cacheguard/cacheguard/cacheguard"
)

var leaseCases = []spec{
	{"lease is granted once", oneLoad, leaseOnce},
	{"lease says who holds it and for how long", oneLoad, leaseSaysWho},
	{"lease knows its own token", repeatable, leaseOwnToken},
	{"lease has a number for each grant", numbered, leaseNumbers},
	{"lease finds the value", oneLoad, leaseFindsValue},
	{"lease takes a seen value for absent", survivable, leaseSeen},
	{"lease says if the seen value stands", survivable, leaseStands},
	{"lease of a seen value is held", oneLoad, leaseSeenHeld},
	{"lease expires", releases, leaseExpires},
	{"lease lives until its expiry", oneLoad, leaseLives},
	{"lease that was lost", survives, leaseLost},
	{"lease that is none", survives, leaseSpoiled},
}

func leaseOnce(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	for _, s := range []cacheguard.Store{e.a, e.b} {
		e.waiter(s, k, g)
	}
	e.holds(k, g)
	e.leader(e.b, e.key("another key"))
}

func leaseSaysWho(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	for _, wait := range []bool{false, true, true} {
		answer := e.ask(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Wait: wait})
		if answer.State != cacheguard.LeaseHeld {
			e.Fatalf("lease: %s; want it held", describe(answer))
		}
		if answer.Holder != g.Token {
			e.Errorf("the lease is held by %v, the answer says %v", g.Token, answer.Holder)
		}
		if answer.Remaining <= 0 || answer.Remaining > e.longest(long) {
			e.Errorf("a lease of %v has %v left", long, answer.Remaining)
		}
	}
}

func leaseOwnToken(e *env) {
	k, used := e.key("k"), e.key("with a value")
	token := e.token()
	first := e.lead(e.a, k, cacheguard.LeaseAsk{Token: token})
	for _, s := range []cacheguard.Store{e.a, e.b} {
		answer := e.ask(s, k, cacheguard.LeaseAsk{Token: token, Wait: true})
		if answer.State != cacheguard.LeaseGranted || !answer.Grant.Is(first) {
			e.Errorf("the holder asked again and got: %s; want its grant %d once more",
				describe(answer), first.Number)
		}
	}

	f := e.frame(e.token(), "stale")
	e.set(e.a, used, f)
	first = e.lead(e.a, used, cacheguard.LeaseAsk{Token: token, Seen: id(f)})
	if again := e.lead(e.b, used,
		cacheguard.LeaseAsk{Token: token, Seen: id(f)}); !again.Is(first) {
		e.Errorf("the holder asked again and got grant %d; want %d once more", again.Number,
			first.Number)
	}
	e.stored(e.a, used, first, e.frame(token, "fresh"))
}

// leaseNumbers grants the same token several times. Before each further grant the lease ends in
// another way.
func leaseNumbers(e *env) {
	k := e.key("k")
	token := e.token()
	seen := map[int64]string{}
	ways := []struct {
		what string
		end  func(g cacheguard.Grant)
	}{
		{"release", func(cacheguard.Grant) { e.release(e.a, k, token) }},
		{"invalidation", func(cacheguard.Grant) { e.invalidate(e.b, k) }},
		{"outcome", func(g cacheguard.Grant) {
			e.conclude(e.a, k, g, cacheguard.Outcome{Kind: cacheguard.OutcomeFailed}, 0, 0)
		}},
		{"claim and release", func(cacheguard.Grant) {
			e.release(e.b, k, e.claim(e.b, k, e.token()).Token)
		}},
		{"expiry", func(g cacheguard.Grant) { e.renew(e.a, k, g, short); e.pass(short) }},
	}
	for _, way := range ways {
		g := e.lead(e.a, k, cacheguard.LeaseAsk{Token: token})
		if before, used := seen[g.Number]; used {
			e.Errorf("number %d was granted twice to one token, again after %s", g.Number, before)
		}
		seen[g.Number] = way.what
		way.end(g)
	}
	g := e.lead(e.b, k, cacheguard.LeaseAsk{Token: token})
	if before, used := seen[g.Number]; used {
		e.Errorf("number %d was granted twice to one token, again after %s", g.Number, before)
	}
	for number := range seen {
		if number == g.Number {
			continue
		}
		old := cacheguard.Grant{Token: token, Number: number}
		if answer := e.fill(e.a, k, old, e.frame(token, "late")); answer == cacheguard.FillStored {
			e.Errorf("a fill for an earlier grant of the same token was stored")
		}
	}
}

func leaseFindsValue(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	f := e.frame(g.Token, "v")
	e.stored(e.a, k, g, f)
	for range 2 { // the answer leaves no lease that the second request would find
		answer := e.ask(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Wait: true})
		if answer.State != cacheguard.LeaseValue {
			e.Fatalf("lease: %s; want the value that is there", describe(answer))
		}
		if string(answer.Frame) != string(f) {
			e.Errorf("lease gave the value %s; want %s", brief(answer.Frame), brief(f))
		}
	}
	e.free(k)
}

func leaseSeen(e *env) {
	k := e.key("k")
	f := e.frame(e.token(), "can't be used")
	e.set(e.a, k, f)
	almost := append([]byte{}, id(f)...)
	almost[len(almost)-1]++
	for what, seen := range map[string][]byte{
		"another value": almost, "no value": nil, "an older value": id(e.frame(e.token(), "")),
	} {
		answer := e.ask(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Seen: seen})
		if answer.State != cacheguard.LeaseValue {
			e.Fatalf("lease for one who has seen %s: %s; want the value", what, describe(answer))
		}
	}
	g := e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
	e.value(k, f) // until the value is replaced, other processes may serve it
	f = e.frame(g.Token, "new")
	e.stored(e.b, k, g, f)
	e.value(k, f)
	e.lead(e.a, e.key("nothing there"), cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
}

// leaseStands tests what a grant says about the value that the asker has seen: Stands is true if
// this value was still stored at the grant. With Stands, the answer may have the generations of
// that moment.
func leaseStands(e *env) {
	k, tags := e.key("k"), []string{"t"}
	f := e.frame(e.token(), "can't be used")
	// last is the process that invalidated last; the other one may not have been told yet.
	check := func(stands bool, last cacheguard.Store) {
		e.Helper()
		want := e.generations(last, tags...)
		e.known(last, want, tags...)
		for _, s := range []cacheguard.Store{e.a, e.b} {
			token := e.token()
			for range 2 { // twice, because the first answer may be lost
				answer := e.ask(s, k, cacheguard.LeaseAsk{Token: token, Seen: id(f), Tags: tags})
				if answer.State != cacheguard.LeaseGranted || answer.Stands != stands {
					e.Errorf("lease: %s, the seen value stands: %v; want it granted, %v",
						describe(answer), answer.Stands, stands)
				}
				if answer.Of != nil && (!stands || !slices.Equal(answer.Of, want)) {
					e.Errorf("with a grant came the generations %v; want %v, or none", answer.Of,
						want)
				}
			}
			e.release(s, k, token)
		}
	}
	check(false, e.a)
	e.set(e.a, k, f)
	check(true, e.a)
	e.invalidateTags(e.b, tags...)
	check(true, e.b)
	e.invalidate(e.b, k)
	check(false, e.b)
	if answer := e.ask(e.a, k, cacheguard.LeaseAsk{Token: e.token()}); answer.Stands {
		e.Errorf("lease: %s; a value stands that nobody has seen", describe(answer))
	}
}

func leaseSeenHeld(e *env) {
	k := e.key("k")
	f := e.frame(e.token(), "stale")
	e.set(e.a, k, f)
	g := e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
	for _, s := range []cacheguard.Store{e.a, e.b} {
		answer := e.ask(s, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
		if answer.State != cacheguard.LeaseHeld || answer.Holder != g.Token {
			e.Errorf("lease while a stale value is refreshed: %s; want it held by %v",
				describe(answer), g.Token)
		}
	}
	e.holds(k, g)
}

func leaseExpires(e *env) {
	k := e.key("k")
	old := e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), TTL: short})
	e.pass(short)
	if h := e.renew(e.a, k, old, long); h != cacheguard.HoldingGone {
		e.Errorf("the holder of an expired lease was told %s; want %s", holding(h),
			holding(cacheguard.HoldingGone))
	}
	g := e.leader(e.b, k)
	if h := e.renew(e.a, k, old, long); h != cacheguard.HoldingOther {
		e.Errorf("the former holder was told %s; want %s", holding(h),
			holding(cacheguard.HoldingOther))
	}
	e.holds(k, g)
}

func leaseLives(e *env) {
	e.within(short, func(k cacheguard.Key) error {
		_, err := e.a.Lease(e.ctx, k, cacheguard.LeaseAsk{Token: e.token(), TTL: short})
		answer, err2 := e.b.Lease(e.ctx, k, cacheguard.LeaseAsk{Token: e.token(), TTL: short})
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if answer.State != cacheguard.LeaseHeld {
			return fmt.Errorf("a lease of %v is over: %s", short, describe(answer))
		}
		if answer.Remaining > e.longest(short) {
			return fmt.Errorf("a lease of %v has %v left", short, answer.Remaining)
		}
		return nil
	})
}

func leaseLost(e *env) {
	if e.fleet.LoseLease == nil {
		e.Skipf("the fleet can't lose a lease")
	}
	k := e.key("k")
	g := e.leader(e.a, k)
	e.fleet.LoseLease(k)
	if h := e.renew(e.a, k, g, long); h != cacheguard.HoldingGone {
		e.Errorf("the holder of a lost lease was told %s; want %s", holding(h),
			holding(cacheguard.HoldingGone))
	}
	e.refused(e.a, k, g, cacheguard.FillGone)
	e.conclude(e.a, k, g, cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "late"}, long,
		long)
	e.noValue(k)

	next := e.leader(e.b, k)
	e.refused(e.a, k, g, cacheguard.FillOther)
	f := e.frame(next.Token, "v")
	e.stored(e.b, k, next, f)
	e.value(k, f)
}

func leaseSpoiled(e *env) {
	if e.fleet.SpoilLease == nil {
		e.Skipf("the fleet can't spoil a lease")
	}
	k := e.key("k")
	e.fleet.SpoilLease(k)
	g := e.leader(e.a, k)
	e.waiter(e.b, k, g)
	f := e.frame(g.Token, "v")
	e.stored(e.a, k, g, f)
	e.value(k, f)

	// The former holder has no lease any longer, and each step says so instead of failing.
	k = e.key("held")
	g = e.leader(e.a, k)
	e.fleet.SpoilLease(k)
	if h := e.renew(e.a, k, g, long); h == cacheguard.HoldingMine {
		e.Errorf("the holder of a spoiled lease was told %s", holding(h))
	}
	if answer := e.fill(e.a, k, g, e.frame(g.Token, "late")); answer == cacheguard.FillStored {
		e.Errorf("the fill for a spoiled lease was %s", filling(answer))
	}
	e.conclude(e.a, k, g, cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "late"}, long,
		long)
	e.release(e.a, k, g.Token)
	e.noValue(k)
	e.leader(e.b, k)

	k = e.key("claimed")
	e.fleet.SpoilLease(k)
	g = e.claim(e.a, k, e.token())
	e.stored(e.a, k, g, e.frame(g.Token, "v"))

	k = e.key("invalidated")
	e.fleet.SpoilLease(k)
	e.invalidate(e.a, k)
	e.free(k)
}
