package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

var outcomeCases = []spec{
	{"outcome ends the lease", releases, outcomeEndsLease},
	{"outcome answers everybody during its back-off", backsOff, outcomeDuringBackoff},
	{"outcome is not over before its back-off", backsOff, outcomeBackoffLives},
	{"outcome answers those who name it after its back-off", named, outcomeAfterBackoff},
	{"outcome without a back-off", named, outcomeWithoutBackoff},
	{"outcome expires", backsOff, outcomeExpires},
	{"outcome that isn't kept", backsOff, outcomeNotKept},
	{"outcome of each kind", oneResult, outcomeKinds},
	{"outcome with a note", oneResult, outcomeNote},
	{"outcome of a failed refresh", backsOff, outcomeOfRefresh},
	{"outcome is replaced by the next load", named, outcomeReplaced},
	{"outcome with the wrong number", numbered, outcomeWrongNumber},
	{"outcome after an invalidation", noLateFill, outcomeAfterInvalidate},
	{"outcome after the lease expired", noLateFill, outcomeAfterExpiry},
	{"outcome after another took over", noLateFill, outcomeAfterClaim},
	{"outcome that is repeated", repeatable, outcomeRepeated},
	{"outcome that supersedes the value", noLateFill, outcomeDrops},
	{"outcome that comes too late supersedes nothing", noLateFill, outcomeDropsLate},
	{"outcome counts failures in a row", backsOff, outcomeFailures},
	{"value that wasn't seen comes before a refresh", oneResult, valueBesideLease},
	{"value that wasn't seen comes before a failed refresh", oneResult, valueBesideOutcome},
	{"outcome after the fill", repeatable, outcomeAfterFill},
}

// outcome asks for the lease with this token and must get the outcome. If there is an awaited load,
// it asks as a waiter for this load.
func (e *env) outcome(
	s cacheguard.Store, k cacheguard.Key, load cacheguard.ID, want cacheguard.Outcome,
	token cacheguard.ID, awaited ...cacheguard.ID,
) time.Duration {
	e.Helper()
	ask := cacheguard.LeaseAsk{Token: token, Wait: true}
	if len(awaited) > 0 {
		ask.Awaited = awaited[0]
	}
	answer := e.ask(s, k, ask)
	switch {
	case answer.State != cacheguard.LeaseOutcome:
		e.Errorf("lease of %s: %s; want the outcome of load %v", name(k), describe(answer), load)
	case answer.Holder != load:
		e.Errorf("lease of %s gave an outcome of load %v; want that of %v", name(k), answer.Holder,
			load)
	default:
		e.sameOutcome(answer.Outcome, want)
	}
	return answer.Remaining
}

func (e *env) sameOutcome(got, want cacheguard.Outcome) {
	e.Helper()
	if got.Kind != want.Kind || got.Text != want.Text || !bytes.Equal(got.Frame, want.Frame) {
		e.Errorf("outcome %d %q %s; want %d %q %s",
			got.Kind, got.Text, brief(got.Frame), want.Kind, want.Text, brief(want.Frame))
	}
	if !bytes.Equal(got.Note, want.Note) {
		e.Errorf("outcome %d with the note %q; want %q", got.Kind, got.Note, want.Note)
	}
}

// fails runs a load of the key that fails.
func (e *env) fails(
	k cacheguard.Key, keep, backoff time.Duration,
) (cacheguard.ID, cacheguard.Outcome) {
	e.Helper()
	g := e.leader(e.a, k)
	o := cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "the origin is broken"}
	e.conclude(e.a, k, g, o, keep, backoff)
	return g.Token, o
}

func outcomeEndsLease(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	e.conclude(e.a, k, g, cacheguard.Outcome{Kind: cacheguard.OutcomeFailed}, long, 0)
	if h := e.renew(e.a, k, g, long); h != cacheguard.HoldingGone {
		e.Errorf("after its outcome the leader was told %s; want %s", holding(h),
			holding(cacheguard.HoldingGone))
	}
	e.noValue(k)
	e.free(k)
}

func outcomeDuringBackoff(e *env) {
	k := e.key("k")
	load, o := e.fails(k, long, long)
	for _, s := range []cacheguard.Store{e.a, e.b} {
		for _, awaited := range []cacheguard.ID{{}, load, e.token()} {
			remaining := e.outcome(s, k, load, o, e.token(), awaited)
			if remaining <= 0 || remaining > e.longest(long) {
				e.Errorf("a back-off of %v has %v left", long, remaining)
			}
		}
	}
	e.noValue(k)
	e.leader(e.b, e.key("another key"))
}

func outcomeBackoffLives(e *env) {
	e.within(short, func(k cacheguard.Key) error {
		lead, err := e.a.Lease(e.ctx, k, cacheguard.LeaseAsk{Token: e.token(), TTL: long})
		err2 := e.a.Conclude(e.ctx, k, lead.Grant,
			cacheguard.Outcome{Kind: cacheguard.OutcomeFailed}, long, short)
		answer, err3 := e.b.Lease(e.ctx, k, cacheguard.LeaseAsk{Token: e.token(), TTL: long})
		if err := errors.Join(err, err2, err3); err != nil {
			return err
		}
		if answer.State != cacheguard.LeaseOutcome {
			return fmt.Errorf("a back-off of %v is over: %s", short, describe(answer))
		}
		if answer.Remaining > e.longest(short) {
			return fmt.Errorf("a back-off of %v has %v left", short, answer.Remaining)
		}
		return nil
	})
}

func outcomeAfterBackoff(e *env) {
	k := e.key("k")
	load, o := e.fails(k, long, short)
	e.pass(short)
	for _, s := range []cacheguard.Store{e.a, e.b} {
		if remaining := e.outcome(s, k, load, o, e.token(), load); remaining > slack {
			e.Errorf("a back-off that is over has %v left", remaining)
		}
	}
	// A waiter for another load gets the lease.
	e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Awaited: e.token()})
}

func outcomeWithoutBackoff(e *env) {
	k := e.key("k")
	load, o := e.fails(k, long, 0)
	e.outcome(e.b, k, load, o, e.token(), load)
	e.leader(e.b, k)

	k = e.key("named differently")
	e.fails(k, long, 0)
	e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Awaited: e.token()})
}

func outcomeExpires(e *env) {
	k := e.key("k")
	load, _ := e.fails(k, short, short)
	e.pass(short)
	e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Awaited: load})
}

func outcomeNotKept(e *env) {
	k := e.key("k")
	load, _ := e.fails(k, 0, 0)
	e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Awaited: load})
}

func outcomeKinds(e *env) {
	token := e.token()
	outcomes := []cacheguard.Outcome{
		{Kind: cacheguard.OutcomeFailed},
		{Kind: cacheguard.OutcomeFailed, Text: "no such table"},
		{Kind: cacheguard.OutcomeFailed, Text: "bytes \x00\xff\r\n{}%:" + string(token[:])},
		{Kind: cacheguard.OutcomeFailed, Text: strings.Repeat("x", 2<<10)},
		{Kind: cacheguard.OutcomeUnstored, Frame: e.frame(token, "")},
		{Kind: cacheguard.OutcomeUnstored, Frame: e.frame(token, "\x00\xff\r\n not to be stored")},
		{
			Kind:  cacheguard.OutcomeUnstored,
			Frame: e.frame(token, strings.Repeat("y", frame.MaxCarried-frame.HeaderSize)),
		},
		{Kind: cacheguard.OutcomeUnshared},
	}
	for i, o := range outcomes {
		k := e.key(fmt.Sprint(i))
		g := e.leader(e.a, k)
		e.conclude(e.a, k, g, o, long, long)
		e.outcome(e.b, k, g.Token, o, e.token())
		e.noValue(k)
	}
}

// noted are outcomes with notes. A note leads from the waiters to the data about the load.
func noted() []cacheguard.Outcome {
	return []cacheguard.Outcome{
		{Kind: cacheguard.OutcomeFailed, Note: []byte("where to look")},
		{Kind: cacheguard.OutcomeFailed, Note: []byte("\x00\xff\r\n:"), Text: "\x05no such table"},
		{
			Kind: cacheguard.OutcomeFailed, Note: bytes.Repeat([]byte{0xff}, frame.MaxNote),
			Text: strings.Repeat("x", 2<<10),
		},
		{Kind: cacheguard.OutcomeUnshared, Note: []byte("where to look")},
		{Kind: cacheguard.OutcomeUnshared, Note: bytes.Repeat([]byte{0}, frame.MaxNote)},
	}
}

// outcomeNote reads the record as well as the message, because only one of them might have the
// note.
func outcomeNote(e *env) {
	in := e.listen(e.b, e.cache)
	for i, o := range noted() {
		k := e.key(fmt.Sprint(i))
		g := e.leader(e.a, k)
		e.waiter(e.b, k, g)
		e.conclude(e.a, k, g, o, long, long)
		e.outcome(e.b, k, g.Token, o, e.token())
		e.outcome(e.a, k, g.Token, o, e.token(), g.Token)
		e.endedWith(in, k, g.Token, o)
	}
}

// outcomeOfRefresh tests that a failed refresh keeps the stale value, and that callers that have
// seen this value don't load.
func outcomeOfRefresh(e *env) {
	k := e.key("k")
	f := e.frame(e.token(), "stale")
	e.set(e.a, k, f)
	g := e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
	e.conclude(e.a, k, g, cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "no"}, long,
		short)
	e.within(short, func(k cacheguard.Key) error {
		if err := e.setFor(e.a, k, f, long); err != nil {
			return err
		}
		lead, err := e.a.Lease(e.ctx, k,
			cacheguard.LeaseAsk{Token: e.token(), Seen: id(f), TTL: long})
		err2 := e.a.Conclude(e.ctx, k, lead.Grant,
			cacheguard.Outcome{Kind: cacheguard.OutcomeFailed}, long, short)
		answer, err3 := e.b.Lease(e.ctx, k,
			cacheguard.LeaseAsk{Token: e.token(), Seen: id(f), TTL: long})
		if err := errors.Join(err, err2, err3); err != nil {
			return err
		}
		if answer.State != cacheguard.LeaseOutcome || answer.Holder != lead.Grant.Token {
			return fmt.Errorf("after a failed refresh: %s; want its outcome", describe(answer))
		}
		return nil
	})
	e.value(k, f)
	e.pass(short)
	e.value(k, f)
	g = e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
	f = e.frame(g.Token, "fresh")
	e.stored(e.b, k, g, f)
	e.value(k, f)
}

func outcomeReplaced(e *env) {
	k := e.key("k")
	load, _ := e.fails(k, long, 0)
	g := e.leader(e.b, k)
	answer := e.ask(e.a, k, cacheguard.LeaseAsk{Token: e.token(), Awaited: load, Wait: true})
	if answer.State != cacheguard.LeaseHeld || answer.Holder != g.Token {
		e.Errorf("lease for one who waited for the last load: %s; want it held by %v",
			describe(answer), g.Token)
	}
	e.release(e.b, k, g.Token)
	e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), Awaited: load})
}

func outcomeWrongNumber(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	e.conclude(e.a, k, other(g), cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "late"},
		long, long)
	e.waiter(e.b, k, g)
	e.conclude(e.a, k, other(g), cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "late"},
		0, 0)
	e.waiter(e.b, k, g)
	e.stored(e.a, k, g, e.frame(g.Token, "v"))
}

func outcomeAfterInvalidate(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	e.invalidate(e.b, k)
	e.conclude(e.a, k, g, cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "late"}, long,
		long)
	e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Awaited: g.Token})
}

func outcomeAfterExpiry(e *env) {
	k := e.key("k")
	g := e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), TTL: short})
	e.pass(short)
	e.conclude(e.a, k, g, cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "late"}, long,
		long)
	e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Awaited: g.Token})
}

func outcomeAfterClaim(e *env) {
	k := e.key("k")
	old := e.leader(e.a, k)
	g := e.claim(e.b, k, e.token())
	e.conclude(e.a, k, old, cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "late"}, long,
		long)
	e.holds(k, g)
	e.waiter(e.a, k, g)
}

// outcomeRepeated repeats the step twice: once with a longer back-off, which must have no effect,
// and once while the next load runs.
func outcomeRepeated(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	o := cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "no"}
	e.conclude(e.a, k, g, o, long, 0)
	e.conclude(e.a, k, g, o, long, long)
	e.outcome(e.b, k, g.Token, o, e.token(), g.Token)
	next := e.leader(e.b, k)
	e.conclude(e.a, k, g, o, long, long)
	e.holds(k, next)
}

func outcomeAfterFill(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	f := e.frame(g.Token, "v")
	e.stored(e.a, k, g, f)
	e.conclude(e.a, k, g, cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "late"}, long,
		long)
	e.value(k, f)
	e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Awaited: g.Token, Seen: id(f)})
}

// outcomeDrops has a load that finds out that the stored value is no longer true, and that has no
// value to store instead.
func outcomeDrops(e *env) {
	k, kept := e.key("k"), e.key("kept")
	f := e.frame(e.token(), "stale")
	for _, k := range []cacheguard.Key{k, kept} {
		e.set(e.a, k, f)
		g := e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
		o := cacheguard.Outcome{Kind: cacheguard.OutcomeUnshared, Drop: k != kept}
		e.conclude(e.a, k, g, o, long, long)
		answer := e.ask(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
		if answer.State != cacheguard.LeaseOutcome || answer.Holder != g.Token {
			e.Errorf("lease of %s: %s; want the outcome of load %v", name(k), describe(answer),
				g.Token)
		}
	}
	e.noValue(k)
	e.value(kept, f)
}

func outcomeDropsLate(e *env) {
	k := e.key("k")
	old := e.leader(e.a, k)
	f := e.frame(e.token(), "set meanwhile")
	e.set(e.b, k, f)
	late := cacheguard.Outcome{Kind: cacheguard.OutcomeUnshared, Drop: true}
	e.conclude(e.a, k, old, late, long, long)
	e.value(k, f)
	g := e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
	e.conclude(e.a, k, old, late, long, long)
	e.conclude(e.a, k, other(g), late, long, long)
	e.value(k, f)
}

// outcomeFailures tests that the fleet counts the failures of an origin in a row, whichever process
// loads.
func outcomeFailures(e *env) {
	k := e.key("k")
	for n, s := range []cacheguard.Store{e.a, e.b, e.a} {
		answer := e.ask(s, k, cacheguard.LeaseAsk{Token: e.token()})
		if answer.State != cacheguard.LeaseGranted || answer.Failures != n {
			e.Fatalf("lease after %d failures: %s with %d failures", n, describe(answer),
				answer.Failures)
		}
		o := cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "no: 7:1", Failures: n + 1}
		e.conclude(s, k, answer.Grant, o, long, 0)
	}
	g := e.ask(e.a, k, cacheguard.LeaseAsk{Token: e.token()}).Grant
	e.stored(e.a, k, g, e.frame(g.Token, "v"))
	e.invalidate(e.a, k)
	if answer := e.ask(e.b, k, cacheguard.LeaseAsk{Token: e.token()}); answer.Failures != 0 {
		e.Errorf("%d failures are remembered after a load that didn't fail", answer.Failures)
	}
}

// valueBesideLease tests a caller that found nothing, or an older value, while a newer value is
// being refreshed. The caller gets the newer value and need not wait.
func valueBesideLease(e *env) {
	k := e.key("k")
	f := e.frame(e.token(), "v")
	e.set(e.a, k, f)
	g := e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
	e.givesValue(k, f)
	if h := e.renew(e.a, k, g, long); h != cacheguard.HoldingMine {
		e.Errorf("whoever refreshes was told %s; want %s", holding(h),
			holding(cacheguard.HoldingMine))
	}
	// The first answer may have been lost.
	answer := e.ask(e.a, k, cacheguard.LeaseAsk{Token: g.Token})
	if answer.State != cacheguard.LeaseGranted || !answer.Grant.Is(g) {
		e.Errorf("whoever has the lease asked again: %s; want its own grant", describe(answer))
	}
}

func valueBesideOutcome(e *env) {
	k := e.key("k")
	f := e.frame(e.token(), "v")
	e.set(e.a, k, f)
	g := e.lead(e.a, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(f)})
	e.conclude(e.a, k, g, cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "no"}, long,
		long)
	e.givesValue(k, f)
}

// givesValue checks that callers that have seen nothing, or another value, get the value.
func (e *env) givesValue(k cacheguard.Key, f []byte) {
	e.Helper()
	other := e.token()
	for _, seen := range [][]byte{nil, other[:]} {
		answer := e.ask(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Seen: seen, Wait: true})
		if answer.State != cacheguard.LeaseValue || !bytes.Equal(answer.Frame, f) {
			e.Errorf("lease of %s: %s; want the value", name(k), describe(answer))
		}
	}
}
