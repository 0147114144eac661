package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

var markCases = []spec{
	{"mark is written into the value", marksStale, markWritten},
	{"mark of any bytes at any place", marksStale, markAnywhere},
	{"mark that is there stays", marksStale, markStays},
	{"mark finds no room", survivable, markNoRoom},
	{"mark of what isn't there", repeatable, markNothing},
	{"mark of a wrong type", survivable, markWrongType},
	{"mark leaves other keys", apart, markLeavesOthers},
	{"mark is not seen in what was read before", anyValue, markLater},
	{"mark ends the lease", noLateFill, markEndsLease},
	{"mark removes the outcome", backsOff, markRemovesOutcome},
	{"mark leaves the value's time", bounded, markLeavesTime},
	{"mark of several keys", marksStale, markSeveral},
	{"message of a mark", localTruth, toldMark},
}

func (e *env) mark(s cacheguard.Store, at int, mark []byte, keys ...cacheguard.Key) {
	e.Helper()
	if err := s.MarkStale(e.ctx, keys, at, mark); err != nil {
		e.Fatalf("MarkStale: %v", err)
	}
}

// markStale marks keys at the position at which caches mark them.
func (e *env) markStale(s cacheguard.Store, keys ...cacheguard.Key) {
	e.Helper()
	e.mark(s, frame.MarkStart, frame.Mark(time.UnixMicro(1)), keys...)
}

// marked returns a frame with this mark.
func marked(f []byte, at int, mark []byte) []byte {
	f = bytes.Clone(f)
	copy(f[at:], mark)
	return f
}

func markWritten(e *env) {
	for _, s := range []cacheguard.Store{e.a, e.b} {
		for _, size := range []int{0, 1, 100, 1 << 16, 1 << 20} {
			k := e.key(fmt.Sprint(size))
			f := e.frame(e.token(), strings.Repeat("v", size))
			e.set(e.a, k, f)
			at := e.a.Now().Truncate(time.Microsecond)
			e.mark(s, frame.MarkStart, frame.Mark(at), k)
			e.value(k, marked(f, frame.MarkStart, frame.Mark(at)))
			if h, _, err := frame.Parse(e.get(e.b, k)); err != nil || !h.Marked.Equal(at) {
				e.Errorf("a value that was marked stale at %v says %v, %v", at, h.Marked, err)
			}
		}
	}
}

func markAnywhere(e *env) {
	zeros := make([]byte, 40)
	for i, mark := range []string{
		"x", "\xff", "\x00\x01", "\x01\x00", "\r\n$1\r\n", "12345678", strings.Repeat("\x80", 40),
	} {
		for _, at := range []int{0, 1, 17, 40 - len(mark)} {
			if at+len(mark) > len(zeros) {
				continue
			}
			k := e.key(fmt.Sprint(i, " ", at))
			e.set(e.a, k, zeros)
			e.mark(e.b, at, []byte(mark), k)
			e.value(k, marked(zeros, at, []byte(mark)))
		}
	}
}

// markStays tests that a marked value keeps its first mark. Every text except zeros is a mark.
func markStays(e *env) {
	k := e.key("k")
	f := e.frame(e.token(), "v")
	e.set(e.a, k, f)
	first := []byte("\x00\x00firstm")
	e.mark(e.a, frame.MarkStart, first, k)
	for _, s := range []cacheguard.Store{e.a, e.b} {
		e.mark(s, frame.MarkStart, []byte("2ndmarks"), k)
		e.value(k, marked(f, frame.MarkStart, first))
	}
	for i := range len(first) {
		k := e.key(fmt.Sprint(i))
		one := make([]byte, len(first))
		one[i] = 1
		e.set(e.a, k, marked(f, frame.MarkStart, one))
		e.mark(e.b, frame.MarkStart, []byte("2ndmarks"), k)
		e.value(k, marked(f, frame.MarkStart, one))
	}
}

// markNoRoom uses values that end before the end of the mark. No value may grow.
func markNoRoom(e *env) {
	mark := []byte("the mark")
	for size := range 20 + len(mark) {
		k := e.key(fmt.Sprint(size))
		v := make([]byte, size)
		e.set(e.a, k, v)
		e.mark(e.b, 20, mark, k)
		e.value(k, v)
	}
	for _, size := range []int{0, frame.MarkStart - 1, frame.MarkStart, frame.HeaderSize - 1} {
		k := e.key(fmt.Sprint("frame ", size))
		v := e.frame(e.token(), "")[:size]
		e.set(e.a, k, v)
		e.markStale(e.a, k)
		e.value(k, v)
	}
}

func markNothing(e *env) {
	e.markStale(e.a)
	e.markStale(e.a, e.key("k"))
	e.markStale(e.a, e.key("k"), e.key("k"))
	e.noValue(e.key("k"))
	e.free(e.key("k"))
}

func markWrongType(e *env) {
	if e.fleet.WrongType == nil {
		e.Skipf("the fleet can't make a value of a wrong type")
	}
	k, beside := e.key("k"), e.key("beside")
	f := e.frame(e.token(), "v")
	e.set(e.a, beside, f)
	e.fleet.WrongType(k)
	e.mark(e.a, frame.MarkStart, []byte("the mark"), k, beside)
	if f := e.get(e.b, k); f == nil || len(f) != 0 {
		e.Errorf("after a mark Get of a wrong type gave %#v; want an empty frame that is not nil",
			f)
	}
	e.value(beside, marked(f, frame.MarkStart, []byte("the mark")))
}

func markLeavesOthers(e *env) {
	k, held := e.key("k"), e.key("held")
	others := []cacheguard.Key{
		e.key(""), e.key("k:lease"), e.key("K"), {Cache: e.cache + ":k", Key: "k"},
		{Cache: e.cache + "x", Key: "k"},
	}
	f := e.frame(e.token(), "v")
	e.set(e.a, k, f)
	for _, other := range others {
		e.set(e.a, other, f)
	}
	g := e.leader(e.a, held)
	e.markStale(e.b, k)
	for _, other := range others {
		e.value(other, f)
	}
	e.holds(held, g)
}

func markLater(e *env) {
	k := e.key("k")
	f := e.frame(e.token(), "v")
	e.set(e.a, k, f)
	got := e.get(e.a, k)
	e.markStale(e.a, k)
	if !bytes.Equal(got, f) {
		e.Errorf("a frame that was read before became %s; want %s", brief(got), brief(f))
	}
}

func markEndsLease(e *env) {
	k, claimed, cold := e.key("k"), e.key("claimed"), e.key("cold")
	f := e.frame(e.token(), "v")
	e.set(e.a, k, f)
	refresh := e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
	claim := e.claim(e.a, claimed, e.token())
	load := e.leader(e.a, cold)
	e.markStale(e.b, k, claimed, cold)
	for k, g := range map[cacheguard.Key]cacheguard.Grant{k: refresh, claimed: claim, cold: load} {
		if h := e.renew(e.a, k, g, long); h != cacheguard.HoldingGone {
			e.Errorf("after a mark the leader of %s was told %s; want %s", name(k), holding(h),
				holding(cacheguard.HoldingGone))
		}
		e.refused(e.a, k, g, cacheguard.FillGone)
		e.free(k)
	}
	e.noValue(claimed)
	e.noValue(cold)

	// The stored value still is the value that was seen.
	next := e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
	e.refused(e.a, k, refresh, cacheguard.FillOther)
	f = e.frame(next.Token, "fresh")
	e.stored(e.b, k, next, f)
	e.value(k, f)
}

func markRemovesOutcome(e *env) {
	k := e.key("k")
	load, _ := e.fails(k, long, long)
	e.markStale(e.b, k)
	e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Awaited: load})

	k = e.key("refreshed")
	f := e.frame(e.token(), "v")
	e.set(e.a, k, f)
	g := e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
	e.conclude(e.a, k, g, cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "no"}, long,
		long)
	e.markStale(e.b, k)
	e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Awaited: g.Token, Seen: id(f)})
}

func markLeavesTime(e *env) {
	k := e.key("k")
	if err := e.setFor(e.a, k, e.frame(e.token(), "v"), short); err != nil {
		e.Fatalf("%v", err)
	}
	e.markStale(e.b, k)
	e.pass(short)
	e.noValue(k)

	stays := e.key("stays")
	f := e.frame(e.token(), "v")
	e.set(e.a, stays, f)
	e.mark(e.b, frame.MarkStart, []byte("the mark"), stays)
	e.pass(short)
	e.value(stays, marked(f, frame.MarkStart, []byte("the mark")))
}

func markSeveral(e *env) {
	const n = 400
	var keys []cacheguard.Key
	f := e.frame(e.token(), "v")
	want := marked(f, frame.MarkStart, []byte("the mark"))
	for i := range n {
		k := e.key(fmt.Sprint(i))
		keys = append(keys, k)
		switch i % 4 {
		case 0:
			e.set(e.a, k, f)
		case 1:
			e.leader(e.a, k)
		case 2:
			e.set(e.a, k, f[:30])
		}
	}
	of := cacheguard.Key{Cache: e.cache + "-other", Key: keys[0].Key}
	e.set(e.a, of, f)
	e.mark(e.b, frame.MarkStart, []byte("the mark"), append(keys, keys[0], keys[1])...)
	for i, k := range keys {
		switch i % 4 {
		case 0:
			e.value(k, want)
		case 1:
			e.free(k)
		case 2:
			e.value(k, f[:30])
		case 3:
			e.noValue(k)
		}
	}
	e.value(of, f)
	e.mark(e.a, frame.MarkStart, []byte("the mark"), keys[1], of) // keys of two caches
	e.value(of, want)
}

func toldMark(e *env) {
	keys := []cacheguard.Key{e.key("value"), e.key("lease"), e.key("nothing")}
	for _, k := range keys {
		e.changedBy(k, func(s cacheguard.Store) {
			value, lease := keys[0], keys[1]
			if e.get(s, value) == nil {
				g := e.leader(s, value)
				e.stored(s, value, g, e.frame(g.Token, "v"))
			}
			e.ask(s, lease, cacheguard.LeaseAsk{Token: e.token()})
			e.markStale(s, keys...)
		})
	}
}
