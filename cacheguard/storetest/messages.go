package storetest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

var messageCases = []spec{
	{"message of a claim", localTruth, toldClaim},
	{"message of an invalidation", localTruth, toldInvalidation},
	{"message of a change to what isn't there", localTruth, toldChangeOfNothing},
	{"message of a fill", oneResult, toldFill},
	{"message of a large fill", oneResult, toldLargeFill},
	{"message of a fill after the leader came again", oneResult, toldFillLater},
	{"message of an outcome", oneResult, toldOutcome},
	{"message of an outcome that isn't kept", oneResult, toldOutcomeNotKept},
	{"message of a release", releases, toldRelease},
	{"message of a claim's fill", oneResult, toldClaimsFill},
	{"message of a refused fill", named, notToldRefusedFill},
	{"message of a refused outcome", named, notToldRefusedOutcome},
	{"message of another's release", named, notToldOthersRelease},
	{"messages in order", localTruth, toldInOrder},
	{"messages of keys of any bytes", apart, toldAnyKey},
}

// maxFrame is the size in bytes of the largest frame that a message must carry.
const maxFrame = 1 << 10

// changedBy checks that a step tells every process that the key changed.
func (e *env) changedBy(k cacheguard.Key, step func(s cacheguard.Store)) {
	e.Helper()
	ins := []*inbox{e.listen(e.a, k.Cache), e.listen(e.b, k.Cache)}
	for _, s := range []cacheguard.Store{e.a, e.b} {
		before := []int{ins[0].changes(k), ins[1].changes(k)}
		step(s)
		for i, in := range ins {
			e.eventually(fmt.Sprintf("process %d is told that the key changed", i), func() bool {
				return in.changes(k) > before[i]
			})
		}
	}
}

func toldClaim(e *env) {
	k := e.key("k")
	e.set(e.a, k, e.frame(e.token(), "v"))
	e.changedBy(k, func(s cacheguard.Store) { e.claim(s, k, e.token()) })
}

func toldInvalidation(e *env) {
	keys := []cacheguard.Key{e.key("value"), e.key("lease"), e.key("outcome")}
	for _, k := range keys {
		e.changedBy(k, func(s cacheguard.Store) {
			e.set(s, keys[0], e.frame(e.token(), "v"))
			e.leader(s, keys[1])
			e.fails(keys[2], long, long)
			e.invalidate(s, keys...)
		})
	}
}

func toldChangeOfNothing(e *env) {
	k := e.key("k")
	e.changedBy(k, func(s cacheguard.Store) { e.invalidate(s, k) })
}

func toldFill(e *env) {
	in := e.listen(e.b, e.cache)
	for i, size := range []int{0, 1, 300, maxFrame - 100} {
		k := e.key(fmt.Sprint(i))
		g := e.leader(e.a, k)
		e.waiter(e.b, k, g)
		f := e.frame(g.Token, strings.Repeat("\x00", size))
		e.stored(e.a, k, g, f)
		m := in.await(k, cacheguard.MessageFilled)
		if m.Load != g.Token {
			e.Errorf("load %v filled, the message says %v", g.Token, m.Load)
		}
		if !bytes.Equal(m.Frame, f) {
			e.Errorf("the message carries the frame %s; want %s", brief(m.Frame), brief(f))
		}
	}
}

// toldFillLater lets the leader ask once more, as after a lost reply, and renew its lease. The
// store must not forget the waiters.
func toldFillLater(e *env) {
	k := e.key("k")
	in := e.listen(e.b, e.cache)
	g := e.leader(e.a, k)
	e.waiter(e.b, k, g)
	e.lead(e.a, k, cacheguard.LeaseAsk{Token: g.Token})
	e.holds(k, g)
	// A process that asks without waiting changes nothing either.
	answer := e.ask(e.a, k, cacheguard.LeaseAsk{Token: e.token()})
	if answer.State != cacheguard.LeaseHeld {
		e.Errorf("lease: %s; want it held", describe(answer))
	}
	e.stored(e.a, k, g, e.frame(g.Token, "v"))
	in.await(k, cacheguard.MessageFilled)
}

func toldLargeFill(e *env) {
	in := e.listen(e.b, e.cache)
	for _, size := range []int{frame.MaxCarried, 5 << 10, 1 << 20} {
		k := e.key(fmt.Sprint(size))
		g := e.leader(e.a, k)
		e.waiter(e.b, k, g)
		f := e.frame(g.Token, strings.Repeat("x", size))
		e.stored(e.a, k, g, f)
		m := in.await(k, cacheguard.MessageFilled)
		if m.Load != g.Token {
			e.Errorf("load %v filled, the message says %v", g.Token, m.Load)
		}
		if m.Frame != nil && !bytes.Equal(m.Frame, f) {
			e.Errorf("the message carries the frame %s; want none, or %s", brief(m.Frame), brief(f))
		}
	}
}

func toldOutcome(e *env) {
	in := e.listen(e.b, e.cache)
	token := e.token()
	for i, o := range []cacheguard.Outcome{
		{Kind: cacheguard.OutcomeFailed, Text: "no such table"},
		{Kind: cacheguard.OutcomeFailed, Text: strings.Repeat("\x00\xff\r\n", 256)},
		{Kind: cacheguard.OutcomeUnstored, Frame: e.frame(token, "not to be stored")},
		{
			Kind:  cacheguard.OutcomeUnstored,
			Frame: e.frame(token, strings.Repeat("y", frame.MaxCarried-frame.HeaderSize)),
		},
		{Kind: cacheguard.OutcomeUnshared},
	} {
		k := e.key(fmt.Sprint(i))
		g := e.leader(e.a, k)
		e.waiter(e.b, k, g)
		e.conclude(e.a, k, g, o, long, long)
		e.endedWith(in, k, g.Token, o)
	}
}

// endedWith checks the message that waiters get about a load that ends without a value.
func (e *env) endedWith(in *inbox, k cacheguard.Key, load cacheguard.ID, o cacheguard.Outcome) {
	e.Helper()
	m := in.await(k, cacheguard.MessageOutcome)
	if m.Load != load {
		e.Errorf("load %v ended, the message says %v", load, m.Load)
	}
	e.sameOutcome(m.Outcome, o)
}

func toldOutcomeNotKept(e *env) {
	k := e.key("k")
	in := e.listen(e.b, e.cache)
	g := e.leader(e.a, k)
	e.waiter(e.b, k, g)
	o := cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "no"}
	e.conclude(e.a, k, g, o, 0, 0)
	e.endedWith(in, k, g.Token, o)
}

func toldRelease(e *env) {
	k := e.key("k")
	in := e.listen(e.b, e.cache)
	g := e.leader(e.a, k)
	e.waiter(e.b, k, g)
	e.release(e.a, k, g.Token)
	if m := in.await(k, cacheguard.MessageReleased); m.Load != g.Token {
		e.Errorf("load %v was given up, the message says %v", g.Token, m.Load)
	}
}

func toldClaimsFill(e *env) {
	k := e.key("k")
	in := e.listen(e.b, e.cache)
	old := e.leader(e.b, k)
	e.waiter(e.b, k, old)
	g := e.claim(e.a, k, e.token())
	in.await(k, cacheguard.MessageChanged) // after this message the waiter looks again
	e.waiter(e.b, k, g)
	e.stored(e.a, k, g, e.frame(g.Token, "written"))
	if m := in.await(k, cacheguard.MessageFilled); m.Load != g.Token {
		e.Errorf("load %v filled, the message says %v", g.Token, m.Load)
	}
}

func notToldRefusedFill(e *env) {
	k := e.key("k")
	in := e.listen(e.b, e.cache)
	g := e.leader(e.a, k)
	e.waiter(e.b, k, g)
	e.fill(e.a, k, other(g), e.frame(g.Token, "late"))
	e.invalidate(e.b, k)
	e.fill(e.a, k, g, e.frame(g.Token, "late"))
	in.none(e.a, k, cacheguard.MessageFilled)
}

func notToldRefusedOutcome(e *env) {
	k := e.key("k")
	in := e.listen(e.b, e.cache)
	g := e.leader(e.a, k)
	e.waiter(e.b, k, g)
	late := cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "late"}
	e.conclude(e.a, k, other(g), late, long, long)
	e.invalidate(e.b, k)
	e.conclude(e.a, k, g, late, long, long)
	e.conclude(e.a, k, g, late, 0, 0)
	in.none(e.a, k, cacheguard.MessageOutcome)
}

func notToldOthersRelease(e *env) {
	k := e.key("k")
	in := e.listen(e.b, e.cache)
	g := e.leader(e.a, k)
	e.waiter(e.b, k, g)
	e.release(e.a, k, e.token())
	in.none(e.a, k, cacheguard.MessageReleased)
}

// toldInOrder changes and fills one key in turn. If the message of a fill came before the message
// of an earlier change, a process would forget the filled value, or take it to be older than it is.
func toldInOrder(e *env) {
	k := e.key("k")
	in := e.listen(e.b, e.cache)
	var want []string
	for range 20 {
		e.invalidate(e.a, k)
		g := e.leader(e.a, k)
		e.waiter(e.b, k, g)
		e.stored(e.a, k, g, e.frame(g.Token, "v"))
		want = append(want, "changed", "filled "+g.Token.String())
	}
	e.eventually("all messages arrive", func() bool { return len(in.about(k)) >= len(want) })
	var got []string
	for _, m := range in.until(e.a, k) {
		if m.Kind == cacheguard.MessageFilled {
			got = append(got, "filled "+m.Load.String())
		} else {
			got = append(got, messageKind(m.Kind))
		}
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		e.Errorf("messages came in this order:\n\t%v\nwant:\n\t%v", got, want)
	}
}

func toldAnyKey(e *env) {
	in := e.listen(e.b, e.cache)
	for _, key := range trickyKeys() {
		k := e.key(key)
		g := e.leader(e.a, k)
		e.waiter(e.b, k, g)
		e.stored(e.a, k, g, e.frame(g.Token, key))
		if m := in.await(k, cacheguard.MessageFilled); m.Load != g.Token ||
			!bytes.HasSuffix(m.Frame, []byte(key)) {
			e.Errorf("the message for key %s is that of load %v with frame %s", name(k), m.Load,
				brief(m.Frame))
		}
		e.invalidate(e.a, k)
		in.await(k, cacheguard.MessageChanged)
	}
}
