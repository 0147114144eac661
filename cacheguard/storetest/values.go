package storetest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

var valueCases = []spec{
	{"value absent", anyValue, valueAbsent},
	{"value of any size", anyValue, valueSizes},
	{"value of any bytes", anyValue, valueBytes},
	{"value is a copy", anyValue, valueIsCopy},
	{"value belongs to its reader", anyValue, valueIsTheReaders},
	{"value expires", bounded, valueExpires},
	{"filled value expires", bounded, filledValueExpires},
	{"value lives until its expiry", anyValue, valueLives},
	{"value too short for an id", survivable, valueTooShort},
	{"value of a wrong type", survivable, valueOfWrongType},
	{"value of a wrong type can be removed", survivable, wrongTypeRemoved},
}

// id returns the part of a frame that a store compares.
func id(f []byte) []byte { return frame.ID(f) }

func valueAbsent(e *env) { e.noValue(e.key("k")) }

func valueSizes(e *env) {
	for _, size := range []int{
		0, 1, 2, 3, 17, 18, 79, 80, 4095, 4096, 4097, 1<<16 - 1, 1 << 16, 1 << 20, 10 << 20,
	} {
		k := e.key(fmt.Sprint("set ", size))
		body := make([]byte, size)
		rand.Read(body)
		e.set(e.a, k, body)
		e.value(k, body)

		k = e.key(fmt.Sprint("fill ", size))
		g := e.leader(e.b, k)
		f := e.frame(g.Token, string(body))
		e.stored(e.b, k, g, f)
		e.value(k, f)
		if answer := e.ask(e.a, k,
			cacheguard.LeaseAsk{Token: e.token()}); answer.State != cacheguard.LeaseValue {
			e.Errorf("lease of a value of %d bytes: %s; want the value", len(f), describe(answer))
		} else if !bytes.Equal(answer.Frame, f) {
			e.Errorf("lease gave the value %s; want %s", brief(answer.Frame), brief(f))
		}
	}
}

// valueBytes uses values that look like entries that a store might make for its own purposes.
func valueBytes(e *env) {
	token := e.token()
	values := []string{
		"\x00", "\x01", "\x00\x00", "\r\n", "$-1\r\n", "*0\r\n", "nil", "null", "false", "0", "-1",
		"OK", "QUEUED",
		"\xff\xfe\xfd", "{}", "}", "lease", string(token[:]), token.String(),
		"L" + string(token[:]),
		"\x00" + string(token[:]), "\x01" + string(token[:]) + "\x00\x00\x00\x00\x00\x00\x00\x01",
		strings.Repeat("\x00", 100), strings.Repeat("\xff", 100),
	}
	for i, v := range values {
		k := e.key(fmt.Sprint(i))
		e.set(e.a, k, []byte(v))
		e.value(k, []byte(v))

		// The store must not take any of the values for a lease.
		g := e.lead(e.a, k, cacheguard.LeaseAsk{Token: token, Seen: id([]byte(v))})
		e.release(e.a, k, g.Token)
		e.value(k, []byte(v))

		k = e.key(fmt.Sprint("framed ", i))
		g = e.leader(e.a, k)
		f := e.frame(g.Token, v)
		e.stored(e.a, k, g, f)
		e.value(k, f)
	}
}

// valueIsCopy changes the caller's buffer after each step that takes a buffer, because callers
// reuse their buffers.
func valueIsCopy(e *env) {
	set, filled, concluded := e.key("set"), e.key("filled"), e.key("concluded")
	spoil := func(b []byte) { clear(b) }

	f := e.frame(e.token(), "as it was handed in")
	want := bytes.Clone(f)
	e.set(e.a, set, f)
	spoil(f)
	e.value(set, want)

	g := e.leader(e.a, filled)
	f = e.frame(g.Token, "as it was handed in")
	want = bytes.Clone(f)
	e.stored(e.a, filled, g, f)
	spoil(f)
	e.value(filled, want)

	g = e.leader(e.a, concluded)
	f = e.frame(g.Token, "as it was handed in")
	want = bytes.Clone(f)
	e.conclude(e.a, concluded, g, cacheguard.Outcome{Kind: cacheguard.OutcomeUnstored, Frame: f},
		long, long)
	spoil(f)
	e.outcome(e.b, concluded, g.Token,
		cacheguard.Outcome{Kind: cacheguard.OutcomeUnstored, Frame: want}, e.token())
}

// valueIsTheReaders takes each step that returns a frame, overwrites the returned frame, and checks
// that the store's value is still the same. A reader may make the frame a part of its value, which
// may be changed. So the store must not use the frame's memory again either.
func valueIsTheReaders(e *env) {
	k := e.key("k")
	in := e.listen(e.b, e.cache)
	g := e.leader(e.a, k)
	e.waiter(e.b, k, g)
	f := e.frame(g.Token, "as it was stored")
	e.stored(e.a, k, g, f)
	clear(in.await(k, cacheguard.MessageFilled).Frame)
	e.value(k, f)
	clear(e.get(e.a, k))
	clear(e.ask(e.a, k, cacheguard.LeaseAsk{Token: e.token()}).Frame)
	e.value(k, f)

	first, second := e.key("first"), e.key("second")
	e.set(e.a, first, []byte("what the first has"))
	e.set(e.a, second, []byte("what another has"))
	got := e.get(e.a, first)
	e.get(e.a, second)
	if string(got) != "what the first has" {
		e.Errorf("after another value was read, the frame of the first is %s", brief(got))
	}

	k = e.key("unstored")
	g = e.leader(e.a, k)
	want := cacheguard.Outcome{Kind: cacheguard.OutcomeUnstored, Frame: f}
	e.conclude(e.a, k, g, want, long, long)
	clear(e.ask(e.a, k, cacheguard.LeaseAsk{Token: e.token()}).Outcome.Frame)
	e.outcome(e.b, k, g.Token, want, e.token())
}

func valueExpires(e *env) {
	k := e.key("k")
	if err := e.setFor(e.a, k, e.frame(e.token(), "v"), short); err != nil {
		e.Fatalf("%v", err)
	}
	e.pass(short)
	e.noValue(k)
	e.leader(e.b, k)
}

func filledValueExpires(e *env) {
	k := e.key("k")
	g := e.leader(e.a, k)
	if _, err := e.a.Fill(e.ctx, k, g, e.frame(g.Token, "v"), short); err != nil {
		e.Fatalf("Fill: %v", err)
	}
	e.pass(short)
	e.noValue(k)
	e.refused(e.a, k, g, cacheguard.FillGone)
}

func valueLives(e *env) {
	for _, ttl := range []time.Duration{
		short, 150 * time.Millisecond, 999 * time.Millisecond, 1500 * time.Millisecond,
	} {
		e.within(ttl, func(k cacheguard.Key) error {
			if err := e.setFor(e.a, k, e.frame(e.token(), "v"), ttl); err != nil {
				return err
			}
			if f, _, err := e.b.Get(e.ctx, k, nil); err != nil || f == nil {
				return errors.Join(err, fmt.Errorf("a value that was set for %v is not there", ttl))
			}
			return nil
		})
	}
	for _, ttl := range []time.Duration{
		1500 * time.Millisecond, 24 * time.Hour, 10 * 365 * 24 * time.Hour,
	} {
		k := e.key(fmt.Sprint("long ", ttl))
		f := e.frame(e.token(), "v")
		if err := e.setFor(e.a, k, f, ttl); err != nil {
			e.Fatalf("Set for %v: %v", ttl, err)
		}
		if ttl > limit { // long enough for any machine to read it
			e.value(k, f)
		}
	}
}

// valueTooShort uses values that end before or within the place of the id. The store compares the
// bytes that exist.
func valueTooShort(e *env) {
	whole := e.frame(e.token(), "v")
	for size := range frame.IDEnd + 1 {
		k := e.key(fmt.Sprint(size))
		v := whole[:size]
		e.set(e.a, k, v)
		g := e.lead(e.b, k, cacheguard.LeaseAsk{Token: e.token(), Seen: id(v)})
		// The store must not take these bytes for the fill's own value.
		e.refused(e.a, k, other(g), cacheguard.FillOther)
		e.value(k, v)
		f := e.frame(g.Token, "new")
		e.stored(e.b, k, g, f)
		e.value(k, f)
	}
}

func valueOfWrongType(e *env) {
	if e.fleet.WrongType == nil {
		e.Skipf("the fleet can't make a value of a wrong type")
	}
	k := e.key("k")
	e.fleet.WrongType(k)
	if f := e.get(e.a, k); f == nil || len(f) != 0 {
		e.Errorf("Get of a wrong type gave %#v; want an empty frame that is not nil", f)
	}
	g := e.leader(e.b, k)
	f := e.frame(g.Token, "v")
	e.stored(e.b, k, g, f)
	e.value(k, f)

	e.fleet.WrongType(k)
	e.set(e.a, k, f)
	e.value(k, f)
}

func wrongTypeRemoved(e *env) {
	if e.fleet.WrongType == nil {
		e.Skipf("the fleet can't make a value of a wrong type")
	}
	k := e.key("k")
	e.fleet.WrongType(k)
	e.invalidate(e.a, k)
	e.noValue(k)

	e.fleet.WrongType(k)
	g := e.claim(e.a, k, e.token())
	e.noValue(k)
	f := e.frame(g.Token, "v")
	e.stored(e.a, k, g, f)
	e.value(k, f)
}
