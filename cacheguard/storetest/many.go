package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

var manyCases = []spec{
	{"many: reads", manyTogether, manyReads},
	{"many: reads with generations", tagged, func(e *env) {
		e.bothWays(func() { manyReadsWithTags(e) })
	}},
	{"many: leases of each kind", manyTogether, manyLeases},
	{"many: leases of large values", manyTogether, manyLargeValues},
	{"many: leases of one key", oneLoad, manyLeasesOfOne},
	{"many: leases expire", releases, manyLeasesExpire},
	{"many: leases of those who wait", oneResult, manyWaiters},
	{"many: fills of each kind", noLateFill, manyFills},
	{"many: fills of one key", repeatable, manyFillsOfOne},
	{"many: filled values expire", bounded, manyFillsExpire},
	{"many: renewals of each kind", noLateFill, manyRenewals},
	{"many: renewals set the remaining time", bounded, manyRenewalsTime},
	{"many: none", manyTogether, manyNone},
	{"many: a thousand", manyTogether, manyThousand},
	{"many: what is broken beside them", survivable, manyBroken},
}

func (e *env) keys(n int, what string) (keys []cacheguard.Key) {
	for i := range n {
		keys = append(keys, e.key(fmt.Sprint(what, " ", i)))
	}
	return keys
}

// asks returns the requests for the leases of n loads.
func (e *env) asks(n int) (asks []cacheguard.LeaseAsk) {
	for range n {
		asks = append(asks, cacheguard.LeaseAsk{Token: e.token(), TTL: long})
	}
	return asks
}

// answers returns the answers in the replies. If one of them has an error, it ends the case.
func answers[T any](e *env, step string, n int, replies []cacheguard.Reply[T]) (all []T) {
	e.Helper()
	if len(replies) != n {
		e.Fatalf("%s of %d keys gave %d answers", step, n, len(replies))
	}
	for i, r := range replies {
		if r.Err != nil {
			e.Fatalf("%s, key %d of %d: %v", step, i, n, r.Err)
		}
		all = append(all, r.Answer)
	}
	return all
}

func (e *env) getMany(s cacheguard.Store, keys []cacheguard.Key) [][]byte {
	e.Helper()
	replies, of := s.GetMany(e.ctx, keys, nil)
	if of != nil {
		e.Errorf("GetMany without tags gave the generations %v; want none", of)
	}
	return answers(e, "GetMany", len(keys), replies)
}

func (e *env) leaseMany(
	s cacheguard.Store, keys []cacheguard.Key, asks []cacheguard.LeaseAsk,
) []cacheguard.LeaseAnswer {
	e.Helper()
	return answers(e, "LeaseMany", len(keys), s.LeaseMany(e.ctx, keys, asks))
}

func (e *env) fillMany(s cacheguard.Store, fills []cacheguard.FillAsk) []cacheguard.FillAnswer {
	e.Helper()
	return answers(e, "FillMany", len(fills), s.FillMany(e.ctx, fills))
}

func (e *env) renewMany(
	s cacheguard.Store, keys []cacheguard.Key, grants []cacheguard.Grant, ttl time.Duration,
) []cacheguard.Holding {
	e.Helper()
	return answers(e, "RenewMany", len(keys), s.RenewMany(e.ctx, keys, grants, ttl))
}

// reads checks the values that both processes read with all keys together, and that the second
// process reads one by one.
func (e *env) reads(keys []cacheguard.Key, want [][]byte) {
	e.Helper()
	for p, s := range []cacheguard.Store{e.a, e.b} {
		for i, got := range e.getMany(s, keys) {
			if !bytes.Equal(got, want[i]) || (got == nil) != (want[i] == nil) {
				e.Errorf("of %d keys that process %d reads, number %d, %s, has the value %s; want %s",
					len(keys), p, i, name(keys[i]), brief(got), brief(want[i]))
			}
		}
	}
	for i, k := range keys {
		if one := e.get(e.b, k); !bytes.Equal(one, want[i]) || (one == nil) != (want[i] == nil) {
			e.Errorf("%s has the value %s; want %s", name(k), brief(one), brief(want[i]))
		}
	}
}

func manyReads(e *env) {
	keys := e.keys(40, "k")
	want := make([][]byte, len(keys))
	for i, k := range keys {
		switch i % 4 {
		case 0:
			want[i] = e.frame(e.token(), fmt.Sprint("value ", i))
		case 1:
			want[i] = []byte("short")
		case 2:
			want[i] = []byte(strings.Repeat("long", 1<<14))
		default:
			continue
		}
		e.set(e.a, k, want[i])
	}
	e.reads(keys, want)
	for _, some := range [][]int{
		{0}, {3}, {5, 4, 3, 2, 1, 0}, {0, 0}, {0, 3, 0, 3, 2}, {39, 1, 38},
	} {
		var few []cacheguard.Key
		var values [][]byte
		for _, i := range some {
			few, values = append(few, keys[i]), append(values, want[i])
		}
		e.reads(few, values)
	}
	twice := e.getMany(e.a, []cacheguard.Key{keys[0], keys[0]})
	clear(twice[0]) // each frame belongs to its reader
	if !bytes.Equal(twice[1], want[0]) {
		e.Errorf("two answers to one question share their bytes")
	}
	e.reads(keys, want)
}

func manyReadsWithTags(e *env) {
	keys := e.keys(3, "k")
	f := e.frame(e.token(), "v")
	e.set(e.a, keys[0], f)
	e.set(e.a, keys[2], f)
	e.invalidateTags(e.a, "u")
	e.invalidateTags(e.a, "t")
	for _, tags := range [][]string{
		{"t", "u", "never"}, {"u", "t"}, {}, {"never"}, {"t", "t"}, anyTags(),
	} {
		want := e.generations(e.a, tags...)
		e.known(e.a, want, tags...)
		for _, s := range []cacheguard.Store{e.a, e.b} {
			replies, of := s.GetMany(e.ctx, keys, tags)
			all := answers(e, "GetMany", len(keys), replies)
			if !bytes.Equal(all[0], f) || all[1] != nil || !bytes.Equal(all[2], f) {
				e.Errorf("GetMany with tags gave %s, %s, %s; want two values, and none between them",
					brief(all[0]), brief(all[1]), brief(all[2]))
			}
			if of != nil && !slices.Equal(of, want) {
				e.Errorf("with values came the generations %v of the cache and %s; want %v, or none",
					of, briefTags(tags), want)
			}
			e.getMany(s, keys)
		}
	}
}

// manyLeases asks for the leases of keys in every state. If the store mixes up two keys, the order
// of the keys makes this visible.
func manyLeases(e *env) {
	for range 2 {
		round := e.token().String()
		keys := e.keys(8, round)
		asks := e.asks(len(keys))
		v := e.frame(e.token(), "v")

		free, held, value, seen, failed, awaited, failedBefore, own := keys[0], keys[1], keys[2],
			keys[3], keys[4], keys[5], keys[6], keys[7]
		holder := e.leader(e.a, held)
		e.set(e.a, value, v)
		e.set(e.a, seen, v)
		asks[3].Seen = id(v)
		load, o := e.fails(failed, long, long)
		ended, o2 := e.fails(awaited, long, 0)
		asks[5].Awaited = ended
		g := e.leader(e.a, failedBefore)
		e.conclude(e.a, failedBefore, g,
			cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Failures: 3}, long, 0)
		mine := e.lead(e.a, own, asks[7])

		all := e.leaseMany(e.b, keys, asks)
		for i, want := range map[int]cacheguard.LeaseState{
			0: cacheguard.LeaseGranted, 1: cacheguard.LeaseHeld, 2: cacheguard.LeaseValue,
			3: cacheguard.LeaseGranted,
			4: cacheguard.LeaseOutcome, 5: cacheguard.LeaseOutcome, 6: cacheguard.LeaseGranted,
			7: cacheguard.LeaseGranted,
		} {
			if all[i].State != want {
				e.Fatalf("lease %d of %d: %s; want state %d", i, len(keys), describe(all[i]), want)
			}
			if want != cacheguard.LeaseGranted {
				continue
			}
			if all[i].Grant.Token != asks[i].Token {
				e.Errorf("lease %d of %d was granted to %v; want the asker %v", i, len(keys),
					all[i].Grant.Token, asks[i].Token)
			}
			if all[i].Stands != (i == 3) {
				e.Errorf("lease %d of %d: the value that was seen stands: %v", i, len(keys),
					all[i].Stands)
			}
			if all[i].Grant.Stamp <= 0 {
				e.Errorf("lease %d of %d has stamp %d; want a time", i, len(keys),
					all[i].Grant.Stamp)
			}
			e.holds(keys[i], all[i].Grant)
		}
		if a := all[1]; a.Holder != holder.Token || a.Remaining <= 0 ||
			a.Remaining > e.longest(long) {
			e.Errorf("lease: %s; want it held by %v for up to %v", describe(a), holder.Token, long)
		}
		if !bytes.Equal(all[2].Frame, v) {
			e.Errorf("lease gave the value %s; want %s", brief(all[2].Frame), brief(v))
		}
		if all[4].Holder != load || all[5].Holder != ended {
			e.Errorf("leases gave outcomes of loads %v and %v; want %v and %v", all[4].Holder,
				all[5].Holder, load, ended)
		}
		e.sameOutcome(all[4].Outcome, o)
		e.sameOutcome(all[5].Outcome, o2)
		if all[6].Failures != 3 {
			e.Errorf("after 3 failures in a row the grant says %d", all[6].Failures)
		}
		if !all[7].Grant.Is(mine) {
			e.Errorf("the holder asked again and got grant %d; want %d once more",
				all[7].Grant.Number, mine.Number)
		}
		f := e.frame(all[0].Grant.Token, "filled")
		e.stored(e.a, free, all[0].Grant, f)
		e.value(free, f)
		e.value(seen, v)
	}
}

func manyLargeValues(e *env) {
	sizes := []int{1 << 20, 100, 1<<16 - 200, 1 << 16, 1<<16 + 1, 70_000, 0, 200_000}
	keys := e.keys(len(sizes), "k")
	var want [][]byte
	for i, size := range sizes {
		want = append(want, e.frame(e.token(), strings.Repeat(string(rune('a'+i)), size)))
		e.set(e.a, keys[i], want[i])
	}
	for _, s := range []cacheguard.Store{e.a, e.b} {
		for i, a := range e.leaseMany(s, keys, e.asks(len(keys))) {
			if a.State != cacheguard.LeaseValue || !bytes.Equal(a.Frame, want[i]) {
				e.Errorf("lease of a value of %d bytes: %s; want the value", len(want[i]),
					describe(a))
			}
		}
	}
}

// manyLeasesOfOne asks several times for the lease of one key, in one call.
func manyLeasesOfOne(e *env) {
	k, beside := e.key("k"), e.key("beside")
	asks := e.asks(4)
	asks[2] = asks[0] // one request is repeated
	all := e.leaseMany(e.a, []cacheguard.Key{k, beside, k, k}, asks)
	granted := cacheguard.Grant{}
	for _, i := range []int{0, 2, 3} {
		if all[i].State == cacheguard.LeaseGranted {
			if !granted.Token.IsZero() && !all[i].Grant.Is(granted) {
				e.Errorf("one key was granted to %v, number %d, and to %v, number %d",
					granted.Token, granted.Number, all[i].Grant.Token, all[i].Grant.Number)
			}
			granted = all[i].Grant
		}
	}
	for _, i := range []int{0, 2, 3} {
		if all[i].State != cacheguard.LeaseGranted &&
			(all[i].State != cacheguard.LeaseHeld || all[i].Holder != granted.Token) {
			e.Errorf("lease: %s; want it held by %v", describe(all[i]), granted.Token)
		}
	}
	e.holds(k, granted)
	e.holds(beside, all[1].Grant)
}

func manyLeasesExpire(e *env) {
	keys := e.keys(3, "k")
	asks := e.asks(len(keys))
	asks[1].TTL = short
	all := e.leaseMany(e.a, keys, asks)
	e.pass(short)
	e.holds(keys[0], all[0].Grant)
	e.leader(e.b, keys[1])
	e.holds(keys[2], all[2].Grant)
}

func manyWaiters(e *env) {
	in := e.listen(e.b, e.cache)
	keys := e.keys(3, "k")
	lead := e.leaseMany(e.a, keys, e.asks(len(keys)))
	asks := e.asks(len(keys))
	var fills []cacheguard.FillAsk
	for i, k := range keys {
		asks[i].Wait = true
		fills = append(fills, cacheguard.FillAsk{
			Key: k, Grant: lead[i].Grant, Frame: e.frame(lead[i].Grant.Token, "v"), TTL: long,
		})
	}
	e.leaseMany(e.b, keys, asks)
	e.fillMany(e.a, fills)
	for i, k := range keys {
		if m := in.await(k, cacheguard.MessageFilled); m.Load != lead[i].Grant.Token ||
			!bytes.Equal(m.Frame, fills[i].Frame) {
			e.Errorf("the message is that of load %v with the frame %s; want load %v with %s",
				m.Load, brief(m.Frame), lead[i].Grant.Token, brief(fills[i].Frame))
		}
	}
}

func manyFills(e *env) {
	for _, s := range []cacheguard.Store{e.a, e.b} {
		keys := e.keys(6, e.token().String())
		var fills []cacheguard.FillAsk
		for i, a := range e.leaseMany(e.a, keys, e.asks(len(keys))) {
			f := e.frame(a.Grant.Token, strings.Repeat(fmt.Sprint(i), 1+i<<14))
			fills = append(fills,
				cacheguard.FillAsk{Key: keys[i], Grant: a.Grant, Frame: f, TTL: long})
		}
		e.invalidate(e.b, keys[1])                // this lease is removed
		claim := e.claim(e.b, keys[2], e.token()) // this lease is held by another load
		e.stored(e.b, keys[3], fills[3].Grant, fills[3].Frame)
		fills[4].Grant = other(fills[4].Grant)
		all := e.fillMany(s, fills)
		for i, want := range []cacheguard.FillAnswer{
			cacheguard.FillStored, cacheguard.FillGone, cacheguard.FillOther, cacheguard.FillStored,
			cacheguard.FillOther, cacheguard.FillStored,
		} {
			if all[i] != want {
				e.Errorf("fill %d of %d was %s; want %s", i, len(fills), filling(all[i]),
					filling(want))
			}
		}
		e.reads(keys, [][]byte{fills[0].Frame, nil, nil, fills[3].Frame, nil, fills[5].Frame})
		e.holds(keys[2], claim)
		for _, i := range []int{0, 3, 5} {
			e.free(keys[i])
		}
	}
}

func manyFillsOfOne(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	fill := cacheguard.FillAsk{Key: k, Grant: g, Frame: e.frame(g.Token, "v"), TTL: long}
	for range 2 {
		for _, answer := range e.fillMany(e.b, []cacheguard.FillAsk{fill, fill}) {
			if answer != cacheguard.FillStored {
				e.Errorf("a fill that was sent again was %s; want it stored", filling(answer))
			}
		}
		e.value(k, fill.Frame)
	}
}

func manyFillsExpire(e *env) {
	keys := e.keys(3, "k")
	var fills []cacheguard.FillAsk
	for i, a := range e.leaseMany(e.a, keys, e.asks(len(keys))) {
		fills = append(fills, cacheguard.FillAsk{
			Key: keys[i], Grant: a.Grant, Frame: e.frame(a.Grant.Token, "v"), TTL: long,
		})
	}
	fills[1].TTL = short
	e.fillMany(e.a, fills)
	e.pass(short)
	e.reads(keys, [][]byte{fills[0].Frame, nil, fills[2].Frame})
}

func manyRenewals(e *env) {
	for _, s := range []cacheguard.Store{e.a, e.b} {
		keys := e.keys(5, e.token().String())
		var grants []cacheguard.Grant
		for _, a := range e.leaseMany(e.a, keys, e.asks(len(keys))) {
			grants = append(grants, a.Grant)
		}
		e.invalidate(e.b, keys[1])
		e.claim(e.b, keys[2], e.token())
		grants[3] = other(grants[3])
		want := []cacheguard.Holding{
			cacheguard.HoldingMine, cacheguard.HoldingGone, cacheguard.HoldingOther,
			cacheguard.HoldingOther, cacheguard.HoldingMine,
		}
		for _, again := range [][]int{{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {0, 0, 1, 1}} {
			var ks []cacheguard.Key
			var gs []cacheguard.Grant
			for _, i := range again {
				ks, gs = append(ks, keys[i]), append(gs, grants[i])
			}
			for j, h := range e.renewMany(s, ks, gs, long) {
				if i := again[j]; h != want[i] {
					e.Errorf("renewal %d of %d was told %s; want %s", j, len(ks), holding(h),
						holding(want[i]))
				}
			}
		}
		e.leader(e.b, keys[1]) // a renewal doesn't create a lease
	}
}

func manyRenewalsTime(e *env) {
	keys := e.keys(3, "k")
	var grants []cacheguard.Grant
	for _, a := range e.leaseMany(e.a, keys, e.asks(len(keys))) {
		grants = append(grants, a.Grant)
	}
	e.renewMany(e.a, keys[:2], grants[:2], short)
	e.renewMany(e.a, keys[1:2], grants[1:2], long)
	// If the answer is another one, this machine is too slow.
	if h := e.renew(e.a, keys[1], grants[1], long); h == cacheguard.HoldingMine {
		defer e.holds(keys[1], grants[1])
	}
	e.pass(short)
	e.leader(e.b, keys[0])
	e.holds(keys[2], grants[2])
}

func manyNone(e *env) {
	for _, s := range []cacheguard.Store{e.a, e.b} {
		for _, keys := range [][]cacheguard.Key{nil, {}} {
			e.getMany(s, keys)
			if replies, _ := s.GetMany(e.ctx, keys, []string{"t"}); len(replies) != 0 {
				e.Errorf("GetMany of no keys gave %d answers", len(replies))
			}
			e.leaseMany(s, keys, nil)
			e.fillMany(s, nil)
			e.renewMany(s, keys, nil, long)
		}
	}
}

// manyThousand runs a load of more keys than a store may want to send in one trip.
func manyThousand(e *env) {
	const n = 1000
	keys := e.keys(n, "k")
	asks := e.asks(n)
	want := make([][]byte, n)
	fills := make([]cacheguard.FillAsk, n)
	grants := make([]cacheguard.Grant, n)
	for i, a := range e.leaseMany(e.a, keys, asks) {
		if a.State != cacheguard.LeaseGranted || a.Grant.Token != asks[i].Token {
			e.Fatalf("lease %d of %d: %s; want it granted to %v", i, n, describe(a), asks[i].Token)
		}
		grants[i] = a.Grant
		want[i] = e.frame(a.Grant.Token, fmt.Sprint("value ", i))
		fills[i] = cacheguard.FillAsk{Key: keys[i], Grant: a.Grant, Frame: want[i], TTL: long}
	}
	for i, a := range e.leaseMany(e.b, keys, e.asks(n)) {
		if a.State != cacheguard.LeaseHeld || a.Holder != asks[i].Token {
			e.Fatalf("lease %d of %d: %s; want it held by %v", i, n, describe(a), asks[i].Token)
		}
	}
	for i, h := range e.renewMany(e.b, keys, grants, long) {
		if h != cacheguard.HoldingMine {
			e.Fatalf("renewal %d of %d was told %s; want %s", i, n, holding(h),
				holding(cacheguard.HoldingMine))
		}
	}
	e.invalidate(e.b, keys[700])
	want[700] = nil
	for i, answer := range e.fillMany(e.a, fills) {
		if (answer == cacheguard.FillStored) != (i != 700) {
			e.Fatalf("fill %d of %d was %s; only number 700 was invalidated", i, n, filling(answer))
		}
	}
	for _, s := range []cacheguard.Store{e.a, e.b} {
		for i, got := range e.getMany(s, keys) {
			if !bytes.Equal(got, want[i]) {
				e.Fatalf("value %d of %d is %s; want %s", i, n, brief(got), brief(want[i]))
			}
		}
	}
	slices.Reverse(keys)
	slices.Reverse(want)
	for i, a := range e.leaseMany(e.b, keys, e.asks(n)) {
		if want[i] != nil && (a.State != cacheguard.LeaseValue || !bytes.Equal(a.Frame, want[i])) {
			e.Fatalf("lease %d of %d: %s; want the value %s", i, n, describe(a), brief(want[i]))
		}
	}
}

// manyBroken damages two keys: it stores an entry that no store wrote in place of the value of one
// key, and in place of the lease of another key. The other keys must not be affected.
func manyBroken(e *env) {
	if e.fleet.WrongType == nil || e.fleet.SpoilLease == nil {
		e.Skipf("the fleet can't do such harm")
	}
	keys := e.keys(5, "k")
	f := e.frame(e.token(), "v")
	for _, i := range []int{0, 4} {
		e.set(e.a, keys[i], f)
	}
	e.fleet.WrongType(keys[1])
	e.fleet.SpoilLease(keys[2])
	all := e.getMany(e.b, keys)
	if !bytes.Equal(all[0], f) || len(all[1]) != 0 || all[2] != nil || all[3] != nil ||
		!bytes.Equal(all[4], f) {
		e.Errorf("GetMany gave %q; want values at both ends only", all)
	}
	var grants []cacheguard.Grant
	var fills []cacheguard.FillAsk
	asks := e.asks(len(keys))
	for i, a := range e.leaseMany(e.b, keys, asks) {
		if i == 0 || i == 4 {
			if a.State != cacheguard.LeaseValue || !bytes.Equal(a.Frame, f) {
				e.Errorf("lease %d: %s; want the value", i, describe(a))
			}
		} else if i != 1 && (a.State != cacheguard.LeaseGranted || a.Grant.Token != asks[i].Token) {
			e.Errorf("lease %d: %s; want it granted", i, describe(a))
		}
		grants = append(grants, a.Grant)
		fills = append(fills, cacheguard.FillAsk{
			Key: keys[i], Grant: a.Grant, Frame: e.frame(a.Grant.Token, "filled"), TTL: long,
		})
	}
	e.fleet.SpoilLease(keys[2]) // the lease is damaged again while the load runs
	held := e.renewMany(e.b, keys[2:4], grants[2:4], long)
	if held[0] == cacheguard.HoldingMine || held[1] != cacheguard.HoldingMine {
		e.Errorf("beside a holder of a spoiled lease, told %s, another one was told %s",
			holding(held[0]), holding(held[1]))
	}
	stored := e.fillMany(e.b, fills[2:4])
	if stored[0] == cacheguard.FillStored || stored[1] != cacheguard.FillStored {
		e.Errorf("beside a fill for a spoiled lease, %s, another one was %s", filling(stored[0]),
			filling(stored[1]))
	}
	e.value(keys[3], fills[3].Frame)
}
