package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

var generationCases = []spec{
	{"generations before any invalidation", tagged, generationsBefore},
	{"generations of tags that were invalidated", tagged, func(e *env) {
		e.bothWays(func() { generationsOfTags(e) })
	}},
	{"generations in the order asked for", tagged, func(e *env) {
		e.bothWays(func() { generationsInOrder(e) })
	}},
	{"generations with a value", tagged, func(e *env) {
		e.bothWays(func() { generationsWithValue(e) })
	}},
	{"generations of tags of any bytes", apart, func(e *env) {
		e.bothWays(func() { generationsOfAnyTags(e) })
	}},
	{"generations of other caches", apart, func(e *env) {
		e.bothWays(func() { generationsOfOthers(e) })
	}},
	{"generation of the whole cache", tagged, func(e *env) {
		e.bothWays(func() { generationOfAll(e) })
	}},
	{"generations where nobody listens", tagged, generationsUnheard},
	{"generations of many tags", tagged, generationsOfMany},
	{"grants have a stamp", tagged, grantsStamped},
	{"grants before and after an invalidation of tags", tagged, grantsAround},
	{"invalidation of tags leaves values and leases", noLateFill, tagsLeaveRest},
	{"message of invalidated tags", localTruth, toldTags},
	{"message of many invalidated tags", localTruth, toldManyTags},
	{"message of invalidated tags of other caches", apart, toldOthersTags},
	{"listener is told which invalidations it may have missed", localTruth, listenSince},
}

// generations returns the generations of the case's own cache.
func (e *env) generations(s cacheguard.Store, tags ...string) cacheguard.Generations {
	e.Helper()
	return e.generationsOf(s, e.cache, tags...)
}

func (e *env) generationsOf(
	s cacheguard.Store, cache string, tags ...string,
) cacheguard.Generations {
	e.Helper()
	of, err := s.Generations(e.ctx, cache, tags)
	if err != nil {
		e.Fatalf("Generations: %v", err)
	}
	if len(of) != 1+len(tags) {
		e.Fatalf("Generations of the cache and %d tags are %v; want %d of them", len(tags), of,
			1+len(tags))
	}
	return of
}

func (e *env) invalidateTags(s cacheguard.Store, tags ...string) int64 {
	e.Helper()
	return e.invalidateTagsOf(s, e.cache, tags...)
}

func (e *env) invalidateTagsOf(s cacheguard.Store, cache string, tags ...string) int64 {
	e.Helper()
	g, err := s.InvalidateTags(e.ctx, cache, tags)
	if err != nil {
		e.Fatalf("InvalidateTags: %v", err)
	}
	if g <= 0 {
		e.Fatalf("InvalidateTags returned generation %d; want a time", g)
	}
	return g
}

// known checks that both processes return these generations. The process that invalidated last must
// return them at once, the other process when its message has arrived.
func (e *env) known(by cacheguard.Store, want cacheguard.Generations, tags ...string) {
	e.Helper()
	if got := e.generations(by, tags...); !sameInEffect(got, want) {
		e.Errorf("in the process that invalidated last the generations of the cache and %s are %v; want %v",
			briefTags(tags), got, want)
		return
	}
	for i, s := range []cacheguard.Store{e.a, e.b} {
		e.eventually(fmt.Sprintf("process %d says the generations %v of the cache and %s", i, want,
			briefTags(tags)), func() bool {
			return sameInEffect(e.generations(s, tags...), want)
		})
	}
}

// sameInEffect reports whether the same values are valid by both generations. If the generation of
// a tag is not later than that of the whole cache, it may be forgotten. So one process may know it
// while another doesn't.
func sameInEffect(a, b cacheguard.Generations) bool {
	return slices.EqualFunc(a, b, func(x, y int64) bool { return max(x, a[0]) == max(y, b[0]) })
}

// bothWays calls do while neither process listens, and again while both listen, because a process
// may keep more while it listens.
func (e *env) bothWays(do func()) {
	e.Helper()
	do()
	for _, s := range []cacheguard.Store{e.a, e.b} {
		e.listening(s)
	}
	e.cache += "-heard"
	do()
}

func briefTags(tags []string) string { return brief([]byte(strings.Join(tags, ","))) }

func generationsBefore(e *env) {
	tags := []string{"t", "u"}
	first := e.generations(e.a, tags...)
	if first[0] <= 0 || first[1] != 0 || first[2] != 0 {
		e.Errorf("generations of a cache that is new are %v; want a time, and 0 for its tags",
			first)
	}
	e.known(e.b, first, tags...) // a read changes nothing
	for _, s := range []cacheguard.Store{e.a, e.b} {
		if g := e.leader(s, e.key(e.token().String())); g.Stamp <= first[0] {
			e.Errorf("a grant of a new cache has stamp %d and would not count: the cache's generation is %d",
				g.Stamp, first[0])
		}
	}
	e.known(e.a, first, tags...)

	e.cache += "-granted before it was asked for" // now the two steps in the other order
	g := e.leader(e.a, e.key("k"))
	first = e.generations(e.b, tags...)
	if first[0] <= 0 || first[0] >= g.Stamp || first[1] != 0 || first[2] != 0 {
		e.Errorf("generations of a new cache with a grant of stamp %d are %v; want one before it, and 0 for its tags",
			g.Stamp, first)
	}
	e.known(e.a, first, tags...)
}

func generationsOfTags(e *env) {
	tags := []string{"t", "u", "v"}
	want := e.generations(e.b, tags...)
	// The third tag is never invalidated.
	for i, some := range [][]int{{1}, {1, 2}, {1}, {2}, {1, 2}} {
		s := e.fleet.Stores[i%2]
		var names []string
		for _, n := range some {
			names = append(names, tags[n-1])
		}
		g := e.invalidateTags(s, names...)
		for _, n := range some {
			if g <= want[n] {
				e.Errorf("tag %q has generation %d after %d; want that it grows", tags[n-1], g,
					want[n])
			}
			want[n] = g
		}
		e.known(s, want, tags...)
	}
}

func generationsInOrder(e *env) {
	g := map[string]int64{"never": 0, "": e.generations(e.a)[0]}
	for _, tag := range []string{"t", "u", "v"} {
		g[tag] = e.invalidateTags(e.a, tag)
	}
	for _, tags := range [][]string{
		{}, {"t"}, {"v"}, {"t", "u", "v"}, {"v", "u", "t"}, {"never", "t"}, {"t", "never"},
		{"u", "never", "t", "never", "v"},
		{"t", "t"}, {"t", "u", "t"},
	} {
		want := cacheguard.Generations{g[""]}
		for _, tag := range tags {
			want = append(want, g[tag])
		}
		e.known(e.a, want, tags...)
	}
}

// generationsWithValue reads generations together with a value, also with a value that is returned
// instead of a lease. A store may return no generations. Then the case reads them in a step of
// their own. The store must not return wrong generations.
func generationsWithValue(e *env) {
	k := e.key("k")
	f := e.frame(e.token(), "v")
	e.set(e.a, k, f)
	check := func(by cacheguard.Store, tags ...string) {
		e.Helper()
		want := e.generations(by, tags...)
		e.known(by, want, tags...)
		for _, s := range []cacheguard.Store{e.a, e.b} {
			got, of, err := s.Get(e.ctx, k, append([]string{}, tags...))
			if err != nil {
				e.Fatalf("Get with tags: %v", err)
			}
			if string(got) != string(f) {
				e.Errorf("Get with tags gave %s; want %s", brief(got), brief(f))
			}
			if of != nil && !slices.Equal(of, want) {
				e.Errorf("with a value came the generations %v of the cache and %s; want %v, or none",
					of, briefTags(tags), want)
			}
			answer := e.ask(s, k, cacheguard.LeaseAsk{Token: e.token(), Tags: tags})
			if answer.State != cacheguard.LeaseValue || string(answer.Frame) != string(f) {
				e.Errorf("lease: %s; want the value that is there", describe(answer))
			}
			if answer.Of != nil && !slices.Equal(answer.Of, want) {
				e.Errorf("with a value in the place of a lease came the generations %v of the cache and %s; want %v, or none",
					answer.Of, briefTags(tags), want)
			}
		}
	}
	check(e.a)
	check(e.a, "t", "u")
	for _, s := range []cacheguard.Store{e.a, e.b} {
		e.invalidateTags(s, "u")
		check(s, "t", "u", "u")
		check(s, "u", "t")
		e.invalidateTags(s)
		check(s)
		check(s, "t", "u")
		if _, of, err := s.Get(e.ctx, k, nil); err != nil || of != nil {
			e.Errorf("Get without tags gave the generations %v, %v; want none", of, err)
		}
	}
	if f, _, err := e.b.Get(e.ctx, e.key("absent"), []string{"t"}); err != nil || f != nil {
		e.Errorf("Get of an absent value with tags: %s, %v; want none", brief(f), err)
	}
}

// anyTags returns as many tags as a value can have. The tags have any bytes, and lengths up to the
// limit.
func anyTags() []string {
	tags := trickyTags()
	return slices.Concat(tags[:frame.MaxTags-16], tags[len(tags)-16:])
}

func trickyTags() []string {
	tags := slices.DeleteFunc(trickyKeys(), func(k string) bool {
		return k == "" || len(k) > frame.MaxTag
	})
	for _, last := range []string{"\x00", "\x01", "\xff", "x", "\n", "}", "1", " "} {
		tags = append(tags, strings.Repeat("\xfe", frame.MaxTag-1)+last)
	}
	return tags
}

func generationsOfAnyTags(e *env) {
	last := map[string]int64{}
	for _, tag := range trickyTags() { // no tag is mistaken for an earlier one
		last[tag] = e.invalidateTags(e.a, tag)
	}
	for tags := range slices.Chunk(trickyTags(), frame.MaxTags) {
		want := cacheguard.Generations{e.generations(e.a)[0]}
		for _, tag := range tags {
			want = append(want, last[tag])
		}
		e.known(e.a, want, tags...)
	}

	k, tags := e.key("k"), anyTags()
	e.set(e.a, k, e.frame(e.token(), "v"))
	want := e.generations(e.a, tags...)
	g := e.invalidateTags(e.b, tags...)
	for i := range tags {
		want[1+i] = g
	}
	e.known(e.b, want, tags...)
	if _, of, err := e.b.Get(e.ctx, k, tags); err != nil || (of != nil && !slices.Equal(of, want)) {
		e.Errorf("with a value came the generations %v, %v; want %v, or none", of, err, want)
	}
}

// likeCaches returns names of caches that look like the name of the case's own cache.
func (e *env) likeCaches() []string {
	return []string{
		e.cache + "x", e.cache[:len(e.cache)-1], e.cache + ":t", e.cache + ":", e.cache + "\x00",
		e.cache + ":tags",
	}
}

func generationsOfOthers(e *env) {
	k := e.key("k")
	e.set(e.a, k, e.frame(e.token(), "v"))
	tags := []string{"t", "u", ":t"}
	e.invalidateTags(e.a, "u")
	want := e.generations(e.a, tags...)
	for _, cache := range e.likeCaches() {
		e.invalidateTagsOf(e.a, cache, tags...)
		e.invalidateTagsOf(e.b, cache)
	}
	e.known(e.a, want, tags...)
	if _, of, err := e.a.Get(e.ctx, k, tags); err != nil || (of != nil && !slices.Equal(of, want)) {
		e.Errorf("with a value came the generations %v, %v; want %v, or none: other caches were invalidated",
			of, err, want)
	}
}

// generationOfAll allows the store to forget the generations of tags, because the generation of the
// whole cache is later.
func generationOfAll(e *env) {
	e.invalidateTags(e.a, "t")
	last := e.generations(e.a, "t", "u")
	for i, none := range [][]string{nil, {}, nil} {
		s := e.fleet.Stores[i%2]
		g := e.invalidateTags(s, none...)
		for _, before := range last {
			if g <= before {
				e.Errorf("the whole cache has generation %d; want it later than all before, %v", g,
					last)
			}
		}
		e.known(s, cacheguard.Generations{g})
		last = e.generations(s, "t", "u")
		if last[0] != g || last[1] >= g || last[2] != 0 {
			e.Errorf("generations of an invalidated cache and its tags are %v; want %d, an earlier one, and 0",
				last, g)
		}
		g = e.invalidateTags(s, "t")
		e.known(s, cacheguard.Generations{last[0], g, 0}, "t", "u")
		last = e.generations(s, "t", "u")
	}
}

// generationsUnheard tests a process that has read generations before and doesn't listen for
// messages. The process must read them again, or begin to listen.
func generationsUnheard(e *env) {
	want := e.generations(e.a, "t", "u")
	for range 3 {
		e.known(e.b, want, "t", "u")
		want[1] = e.invalidateTags(e.a, "t")
		e.known(e.a, want, "t", "u")
		want[0] = e.invalidateTags(e.a)
		e.eventually("the other process knows the generation of the cache", func() bool {
			return e.generations(e.b, "t", "u")[0] == want[0]
		})
		want = e.generations(e.b, "t", "u")
	}
}

// generationsOfMany invalidates more tags than a store may want to invalidate in one step.
// Afterwards each tag has a generation from the time of the call.
func generationsOfMany(e *env) {
	for _, n := range []int{257, 1000} {
		var tags []string
		for i := range n {
			tags = append(tags, fmt.Sprint("tag ", n, " ", i))
		}
		before := e.leader(e.a, e.key(fmt.Sprint("before ", n)))
		g := e.invalidateTags(e.a, tags...)
		after := e.leader(e.a, e.key(fmt.Sprint("after ", n)))
		for some := range slices.Chunk(tags, frame.MaxTags) {
			for _, of := range e.generations(e.a, some...)[1:] {
				if of < before.Stamp || of > g || of >= after.Stamp {
					e.Fatalf("one of %d tags has generation %d; want it from stamp %d on, at most %d, and before stamp %d",
						n, of, before.Stamp, g, after.Stamp)
				}
			}
		}
	}
}

func grantsStamped(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	again := e.lead(e.b, k, cacheguard.LeaseAsk{Token: g.Token})
	if !again.Is(g) {
		e.Errorf("the holder asked again and got grant %d; want %d once more", again.Number,
			g.Number)
	}
	claim := e.claim(e.a, k, e.token())
	for what, g := range map[string]cacheguard.Grant{
		"lease": g, "lease that was asked for again": again, "claim": claim,
		"claim that is repeated": e.claim(e.b, k, claim.Token),
	} {
		if g.Stamp <= 0 {
			e.Errorf("a %s has stamp %d; want a time", what, g.Stamp)
		}
	}
	// The stamp is not part of what identifies a lease.
	claim.Stamp = 0
	e.holds(k, claim)
	e.stored(e.a, k, claim, e.frame(claim.Token, "v"))
}

// grantsAround makes grants of each kind, in each process, before and after invalidations. Values
// of earlier grants must be invalid, and values of later ones valid.
func grantsAround(e *env) {
	e.listening(e.b)
	grants := func() (all map[string]cacheguard.Grant) {
		all = map[string]cacheguard.Grant{}
		for i, s := range []cacheguard.Store{e.a, e.b} {
			key := func() cacheguard.Key { return e.key(e.token().String()) }
			all[fmt.Sprint("a lease in process ", i)] = e.leader(s, key())
			all[fmt.Sprint("a claim in process ", i)] = e.claim(s, key(), e.token())
			refreshed, f := key(), e.frame(e.token(), "stale")
			e.set(e.a, refreshed, f)
			all[fmt.Sprint("a refresh in process ", i)] = e.lead(s, refreshed,
				cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
			keys := []cacheguard.Key{key(), key(), key()}
			for j, r := range e.leaseMany(s, keys, e.asks(len(keys))) {
				all[fmt.Sprint("one of many leases in process ", i, j)] = r.Grant
			}
		}
		return all
	}
	for _, tags := range [][]string{{"t"}, nil, {"t", "u"}, {"t"}, {}} {
		for i, s := range []cacheguard.Store{e.a, e.b} {
			before := grants()
			g := e.invalidateTags(s, tags...)
			after := grants()
			for what, grant := range before {
				if grant.Stamp > g {
					e.Errorf("%s has stamp %d, later than generation %d of tags %q that process %d invalidated after it",
						what, grant.Stamp, g, tags, i)
				}
			}
			for what, grant := range after {
				if grant.Stamp <= g {
					e.Errorf("%s has stamp %d, not later than generation %d of tags %q that process %d invalidated before it",
						what, grant.Stamp, g, tags, i)
				}
			}
		}
	}
}

func tagsLeaveRest(e *env) {
	k, refreshed, claimed := e.key("k"), e.key("refreshed"), e.key("claimed")
	f := e.frame(e.token(), "v")
	e.set(e.a, k, f)
	e.set(e.a, refreshed, f)
	refresh := e.lead(e.a, refreshed, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
	claim := e.claim(e.a, claimed, e.token())
	failed := e.key("failed")
	load, o := e.fails(failed, long, long)
	for _, s := range []cacheguard.Store{e.a, e.b} {
		e.invalidateTags(s, "t", "u")
		e.invalidateTags(s)
	}
	e.value(k, f)
	e.value(refreshed, f)
	e.holds(refreshed, refresh)
	e.holds(claimed, claim)
	e.outcome(e.b, failed, load, o, e.token())
	for k, g := range map[cacheguard.Key]cacheguard.Grant{refreshed: refresh, claimed: claim} {
		f := e.frame(g.Token, "loaded before")
		e.stored(e.b, k, g, f)
		e.value(k, f)
	}
}
