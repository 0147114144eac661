package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

var writeCases = []spec{
	{"claim removes the value", noLateFill, claimRemovesValue},
	{"claim leaves the tags", noLateFill, claimLeavesTags},
	{"claim leaves the tags for as long", releases, claimLeavesTagsForAsLong},
	{"claim takes the lease over", noLateFill, claimTakesOver},
	{"claim removes the outcome", backsOff, claimRemovesOutcome},
	{"claim that is repeated", repeatable, claimRepeated},
	{"claim that is overtaken", noLateFill, claimOvertaken},
	{"claim that is invalidated", noLateFill, claimInvalidated},
	{"claim expires", releases, claimExpires},
	{"invalidation removes the value", localTruth, invalidateRemovesValue},
	{"invalidation removes what a claim left", localTruth, invalidateRemovesRemnant},
	{"invalidation ends the lease", noLateFill, invalidateEndsLease},
	{"invalidation removes the outcome", backsOff, invalidateRemovesOutcome},
	{"invalidation of several keys", localTruth, invalidateSeveral},
	{"invalidation of what isn't there", repeatable, invalidateNothing},
}

func claimRemovesValue(e *env) {
	k := e.key("k")
	e.set(e.a, k, e.frame(e.token(), "old"))
	g := e.claim(e.b, k, e.token())
	e.noValue(k)
	e.waiter(e.a, k, g)
	f := e.frame(g.Token, "written")
	e.stored(e.b, k, g, f)
	e.value(k, f)
	e.free(k)
}

// claimLeavesTags lets several writers claim one value one after the other. Each claim must return
// the value's tags. A reader must get the tags, too, before a writer has stored its value.
func claimLeavesTags(e *env) {
	k := e.key("k")
	for name, f := range e.tagged() {
		e.set(e.a, k, f)
		left := cacheguard.Remnant(f)
		token := e.token()
		g := e.claimLeaves(e.b, k, token, left)
		if again := e.claimLeaves(e.a, k, token, left); !again.Is(g) {
			e.Errorf("%s: a claim that was sent twice was granted number %d and then %d; want one grant",
				name, g.Number, again.Number)
		}
		g = e.claimLeaves(e.b, k, e.token(), left)
		e.release(e.b, k, g.Token)
		g = e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(left)})
		e.value(k, left)
		f = e.frame(g.Token, "without tags")
		e.stored(e.a, k, g, f)
		e.value(k, f)
		g = e.claimLeaves(e.b, k, e.token(), nil)
		e.release(e.b, k, g.Token)
	}
}

// tagged returns frames with tags.
func (e *env) tagged() map[string][]byte {
	several := []string{
		"a", "\x00soft", strings.Repeat("\x00", 100), strings.Repeat("\xff", frame.MaxTag),
	}
	most := slices.Repeat([]string{strings.Repeat("t", frame.MaxTag)}, frame.MaxTags)
	all := make(map[string][]byte)
	for name, c := range map[string]struct {
		list       []string
		note, body string
	}{
		"one tag": {list: []string{"t"}, body: "v"},
		"several": {list: several, note: "a note", body: "v"}, "no body": {list: several},
		"the most": {
			list: most, note: strings.Repeat("n", frame.MaxNote),
			body: strings.Repeat("large ", 10_000),
		},
	} {
		tags, err := frame.MakeTags(c.list)
		if err != nil {
			panic(err)
		}
		h := frame.Header{
			ID: e.token(), Created: e.a.Now(), Soft: long,
			Extension: frame.Extension{Note: []byte(c.note), Tags: tags},
		}
		all[name] = frame.New(h, []byte(c.body))
	}
	return all
}

// claimLeaves claims the key. The store must return left as the remnant, and must have stored it.
func (e *env) claimLeaves(
	s cacheguard.Store, k cacheguard.Key, token cacheguard.ID, left []byte,
) cacheguard.Grant {
	e.Helper()
	g := e.claim(s, k, token)
	if g.Left != string(left) {
		e.Errorf("a claim was told that %s is left; want %s", brief([]byte(g.Left)), brief(left))
	}
	if left == nil {
		e.noValue(k)
	} else {
		e.value(k, left)
	}
	return g
}

// claimLeavesTagsForAsLong tests that the remnant ends when the value would have ended: not when
// the claim's lease ends, and not later.
func claimLeavesTagsForAsLong(e *env) {
	f := e.tagged()["one tag"]
	ends, stays := e.key("ends"), e.key("stays")
	e.set(e.a, stays, f)
	if err := e.setFor(e.a, ends, f, short); err != nil {
		e.Fatalf("%v", err)
	}
	e.claim(e.b, ends, e.token())
	if _, err := e.b.Claim(e.ctx, stays, e.token(), short); err != nil {
		e.Fatalf("Claim: %v", err)
	}
	e.pass(short)
	e.noValue(ends)
	e.value(stays, cacheguard.Remnant(f))
}

func claimTakesOver(e *env) {
	k := e.key("k")
	old := e.leader(e.a, k)
	g := e.claim(e.b, k, e.token())
	if g.Number == old.Number {
		e.Errorf("the claim has the number %d of the lease that it took over", g.Number)
	}
	if h := e.renew(e.a, k, old, long); h != cacheguard.HoldingOther {
		e.Errorf("after a claim the leader was told %s; want %s", holding(h),
			holding(cacheguard.HoldingOther))
	}
	e.release(e.a, k, old.Token)
	e.waiter(e.a, k, g)
	e.holds(k, g)
}

func claimRemovesOutcome(e *env) {
	k := e.key("k")
	load, _ := e.fails(k, long, long)
	g := e.claim(e.b, k, e.token())
	e.waiter(e.a, k, g)
	e.release(e.b, k, g.Token)
	e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), Awaited: load})
}

// claimRepeated repeats a claim on another connection. The existing grant must stay.
func claimRepeated(e *env) {
	k := e.key("k")
	token := e.token()
	g := e.claim(e.a, k, token)
	if again := e.claim(e.b, k, token); !again.Is(g) {
		e.Errorf("a claim that was sent twice was granted number %d and then %d; want one grant",
			g.Number, again.Number)
	}
	if again := e.lead(e.a, k, cacheguard.LeaseAsk{Token: token}); !again.Is(g) {
		e.Errorf("the holder of claim %d asked for the lease and was granted number %d", g.Number,
			again.Number)
	}
	f := e.frame(token, "written")
	e.stored(e.a, k, g, f)
	e.stored(e.b, k, g, f)
	e.value(k, f)
}

func claimOvertaken(e *env) {
	k := e.key("k")
	first := e.claim(e.a, k, e.token())
	second := e.claim(e.b, k, e.token())
	e.refused(e.a, k, first, cacheguard.FillOther)
	e.noValue(k)
	f := e.frame(second.Token, "second")
	e.stored(e.b, k, second, f)
	e.refused(e.a, k, first, cacheguard.FillGone)
	e.value(k, f)
}

func claimInvalidated(e *env) {
	k := e.key("k")
	g := e.claim(e.a, k, e.token())
	e.invalidate(e.b, k)
	e.refused(e.a, k, g, cacheguard.FillGone)
	e.noValue(k)
	e.free(k)
}

func claimExpires(e *env) {
	k := e.key("k")
	token := e.token()
	g, err := e.a.Claim(e.ctx, k, token, short)
	if err != nil {
		e.Fatalf("Claim: %v", err)
	}
	e.pass(short)
	e.refused(e.a, k, g, cacheguard.FillGone)
	e.free(k)
}

func invalidateRemovesValue(e *env) {
	k, stays := e.key("k"), e.key("stays")
	f := e.frame(e.token(), "v")
	for _, s := range []cacheguard.Store{e.a, e.b} {
		e.set(e.a, k, f)
		e.set(e.a, stays, f)
		e.invalidate(s, k)
		e.noValue(k)
		e.value(stays, f)
		e.free(k)
	}
}

func invalidateRemovesRemnant(e *env) {
	k := e.key("k")
	e.set(e.a, k, e.tagged()["one tag"])
	e.claim(e.a, k, e.token())
	e.invalidate(e.b, k)
	e.noValue(k)
	e.claimLeaves(e.b, k, e.token(), nil)
}

func invalidateEndsLease(e *env) {
	k, stays := e.key("k"), e.key("stays")
	f := e.frame(e.token(), "stale")
	e.set(e.a, k, f)
	g := e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
	held := e.leader(e.a, stays)
	e.invalidate(e.b, k)
	if h := e.renew(e.a, k, g, long); h != cacheguard.HoldingGone {
		e.Errorf("after an invalidation the leader was told %s; want %s", holding(h),
			holding(cacheguard.HoldingGone))
	}
	e.noValue(k)
	e.free(k)
	e.holds(stays, held)
}

func invalidateRemovesOutcome(e *env) {
	k := e.key("k")
	load, _ := e.fails(k, long, long)
	e.invalidate(e.b, k)
	e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Awaited: load})
}

func invalidateSeveral(e *env) {
	var keys []cacheguard.Key
	f := e.frame(e.token(), "v")
	for i := range 60 {
		k := e.key(fmt.Sprint(i))
		keys = append(keys, k)
		switch i % 3 {
		case 0:
			e.set(e.a, k, f)
		case 1:
			e.leader(e.a, k)
		case 2:
			e.fails(k, long, long)
		}
	}
	k := cacheguard.Key{Cache: e.cache + "-other", Key: keys[0].Key}
	e.set(e.a, k, f)
	e.invalidate(e.b, append(keys, keys[0])...)
	for _, k := range keys {
		e.noValue(k)
		e.free(k)
	}
	e.value(k, f)
	e.set(e.a, keys[1], f)
	e.invalidate(e.b, k, keys[1]) // keys of two caches
	e.noValue(k)
	e.noValue(keys[1])
}

func invalidateNothing(e *env) {
	e.invalidate(e.a)
	e.invalidate(e.a, e.key("k"))
	e.invalidate(e.a, e.key("k"), e.key("k"))
	e.noValue(e.key("k"))
	e.free(e.key("k"))
}
