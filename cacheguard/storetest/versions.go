package storetest

import (
	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

var versionCases = []spec{
	{"versions stand side by side", versioned, versionsApart},
	{"versions are read together", versioned, versionsMany},
	{"fill leaves other versions", versioned, versionsFill},
	{"invalidation of all versions", versioned, versionsInvalidate},
	{"mark of all versions", versioned, versionsMark},
	{"claim of all versions", versioned, versionsClaim},
	{"claim's fill ends what other versions began meanwhile", versioned, versionsClaimsFill},
	{"claim's fill that is refused leaves other versions", versioned, versionsRefusedFill},
}

// versions returns the keys of all versions.
func (e *env) versions(name string) (all [cacheguard.Versions]cacheguard.Key) {
	for v := range all {
		all[v] = e.key(name)
		all[v].Version = uint8(v)
	}
	return all
}

// load loads a value under a lease and returns its frame.
func (e *env) load(s cacheguard.Store, k cacheguard.Key, body string) []byte {
	e.Helper()
	g := e.leader(s, k)
	f := e.frame(g.Token, body)
	e.stored(s, k, g, f)
	return f
}

func versionsApart(e *env) {
	ks := e.versions("k")
	even, odd := e.leader(e.a, ks[0]), e.leader(e.b, ks[1])
	e.holds(ks[0], even)
	e.holds(ks[1], odd)
	f := e.frame(even.Token, "even")
	e.stored(e.a, ks[0], even, f)
	e.noValue(ks[1])
	e.holds(ks[1], odd)
	g := e.frame(odd.Token, "odd")
	e.stored(e.b, ks[1], odd, g)
	e.value(ks[0], f)
	e.value(ks[1], g)
}

func versionsMany(e *env) {
	var keys []cacheguard.Key
	var want [][]byte
	for _, name := range []string{"a", "b", "}", ""} {
		ks := e.versions(name)
		keys, want = append(keys, ks[1]), append(want, e.load(e.a, ks[1], "odd "+name))
		e.load(e.b, ks[0], "even "+name)
	}
	e.reads(keys, want)
}

func versionsFill(e *env) {
	ks := e.versions("k")
	f := e.load(e.a, ks[0], "even")
	held := e.leader(e.b, e.versions("held")[1])
	e.load(e.a, e.versions("held")[0], "even")
	e.load(e.b, ks[1], "odd")
	e.value(ks[0], f)
	e.holds(e.versions("held")[1], held)
}

func versionsInvalidate(e *env) {
	for v, k := range e.versions("k") {
		ks, loading := e.versions("k"), e.versions("loading")
		for n := range ks {
			e.load(e.a, ks[n], "v")
		}
		var grants []cacheguard.Grant
		for n := range loading {
			grants = append(grants, e.leader(e.b, loading[n]))
		}
		e.invalidate(e.a, k, loading[v])
		for n := range ks {
			e.noValue(ks[n])
			e.refused(e.b, loading[n], grants[n], cacheguard.FillGone)
			e.free(loading[n])
		}
	}
}

func versionsMark(e *env) {
	for v := range e.versions("k") {
		name := string(rune('k' + v))
		ks, loading := e.versions(name), e.versions("loading "+name)
		var grants []cacheguard.Grant
		for n := range ks {
			e.load(e.a, ks[n], "v")
			grants = append(grants, e.leader(e.b, loading[n]))
		}
		e.markStale(e.a, ks[v], loading[v])
		for n := range ks {
			if h, _, err := frame.Parse(e.get(e.b, ks[n])); err != nil || h.Marked.IsZero() {
				e.Errorf("a mark of version %d is not in the value of version %d", v, n)
			}
			e.refused(e.b, loading[n], grants[n], cacheguard.FillGone)
		}
	}
}

func versionsClaim(e *env) {
	for v, k := range e.versions("k") {
		ks := e.versions("k")
		for n := range ks {
			e.load(e.a, ks[n], "v")
		}
		loading := e.versions("loading")
		var grants []cacheguard.Grant
		for n := range loading {
			grants = append(grants, e.leader(e.b, loading[n]))
		}
		e.release(e.a, k, e.claim(e.a, k, e.token()).Token)
		e.release(e.a, k, e.claim(e.a, loading[v], e.token()).Token)
		for n := range ks {
			e.noValue(ks[n])
			if n != v {
				e.refused(e.b, loading[n], grants[n], cacheguard.FillGone)
			}
		}
		e.invalidate(e.a, loading[0])
	}
}

func versionsClaimsFill(e *env) {
	for v, k := range e.versions("k") {
		other := e.versions("k")[1-v]
		g := e.claim(e.a, k, e.token())
		e.load(e.b, other, "from before the write")
		in := e.listen(e.b, e.cache)
		told := in.changes(k)
		f := e.frame(g.Token, "written")
		e.stored(e.a, k, g, f)
		e.value(k, f)
		e.noValue(other)
		e.eventually("the other version's processes are told", func() bool {
			return in.changes(k) > told
		})

		g = e.claim(e.a, k, e.token())
		late := e.leader(e.b, other)
		e.stored(e.a, k, g, e.frame(g.Token, "written"))
		e.refused(e.b, other, late, cacheguard.FillGone)
		e.invalidate(e.a, k)
	}
}

func versionsRefusedFill(e *env) {
	ks := e.versions("k")
	g := e.claim(e.a, ks[0], e.token())
	e.invalidate(e.b, ks[0])
	f := e.load(e.b, ks[1], "of after that")
	e.refused(e.a, ks[0], g, cacheguard.FillGone)
	e.value(ks[1], f)
}
