package coretest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/internal/frame"
)

// TestAnyBytesAreAValue, also those that other caches mean something by, and those that this one
// has for itself.
func TestAnyBytesAreAValue(t *testing.T) {
	header := frame.Header{ID: [16]byte{1, 2, 3}, Created: time.Unix(1e9, 0), Soft: time.Hour}
	null := header
	null.Null = true
	values := map[string][]byte{
		"empty":           {},
		"zero byte":       {0},
		"zero bytes":      make([]byte, 200),
		"star":            []byte("*"),
		"null":            []byte("null"),
		"nil":             []byte("nil"),
		"quotes":          []byte(`""`),
		"rueidis":         []byte("rueidisid:01234567890123456789"),
		"token":           []byte(cacheguard.ID{1, 2, 3}.String()),
		"token bytes":     header.ID[:],
		"not found":       []byte(cacheguard.ErrNotFound.Error()),
		"frame":           frame.New(header, []byte("body")),
		"null sentinel":   frame.New(null, nil),
		"header":          frame.New(header, nil),
		"cut frame":       frame.New(header, []byte("body"))[:40],
		"frame in frame":  frame.New(header, frame.New(null, nil)),
		"not UTF-8":       {0xff, 0xfe, 0x80},
		"line ends":       []byte("\r\n\r\n"),
		"above a message": bytes.Repeat([]byte("large"), 2000),
	}
	for name, value := range values {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			bytesHere, bytesThere := openOn(t, store, cacheguard.Options[[]byte]{Name: "bytes"}),
				openOn(t, store, cacheguard.Options[[]byte]{Name: "bytes"})
			roundTrip(t, bytesHere, bytesThere, value, bytes.Equal)
			stringsHere, stringsThere := openOn(t, store,
				cacheguard.Options[string]{Name: "strings"}),
				openOn(t, store, cacheguard.Options[string]{Name: "strings"})
			roundTrip(t, stringsHere, stringsThere, string(value), func(a, b string) bool {
				return a == b
			})
		})
	}
}

// roundTrip shows that a value is the same for all who get it, by whatever way it came.
func roundTrip[V any](
	t *testing.T, here, there *cacheguard.Cache[V], value V, equal func(a, b V) bool,
) {
	t.Helper()
	o := newScriptedOrigin[V](t)
	check := func(who string, c *begun[V]) {
		t.Helper()
		if v, err := c.now(); err != nil || !equal(v, value) {
			t.Errorf("the %s got %#v, %v", who, v, err)
		}
	}
	leader := getting(t.Context(), t, here, "k", o.load)
	load := o.next()
	joiner, waiter := getting(t.Context(), t, here, "k", o.load),
		getting(t.Context(), t, there, "k", o.load)
	joiner.waits()
	waiter.waits()
	load.gives(value)
	check("leader", leader)
	check("joiner", joiner)
	check("waiter", waiter)
	check("later caller", getting(t.Context(), t, here, "k", o.load))
	check("later caller elsewhere", getting(t.Context(), t, there, "k", o.load))
	o.loads(1)
	if err := here.Set(t.Context(), "set", value); err != nil {
		t.Errorf("Set: %v", err)
	}
	check("reader of what was set", getting(t.Context(), t, there, "set", o.load))

	e := newScriptedOrigin[cacheguard.Entry[V]](t)
	storeless := gettingEntry(t.Context(), t, here, "not stored", e.load)
	entry := e.next()
	carried := gettingEntry(t.Context(), t, there, "not stored", e.load)
	carried.waits()
	entry.gives(cacheguard.Entry[V]{Value: value, NoStore: true})
	if r, err := storeless.now(); err != nil || !equal(r.Value, value) {
		t.Errorf("the leader of what is not stored got %#v, %v", r.Value, err)
	}
	if carried.returned() {
		if r, err := carried.now(); err != nil || !equal(r.Value, value) {
			t.Errorf("the waiter for what is not stored got %#v, %v", r.Value, err)
		}
	} else { // too large to be carried along
		e.next().gives(cacheguard.Entry[V]{Value: value})
		carried.now()
	}
}

type thing struct{ Name string }

// TestNilIsAValue for types that have it: only ErrNotFound and Empty mean "does not exist".
func TestNilIsAValue(t *testing.T) {
	inBubble(t, "pointer", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[*thing]{}),
			openOn(t, store, cacheguard.Options[*thing]{})
		roundTrip(t, here, there, nil, func(a, b *thing) bool { return a == b })
		if r, err := there.Peek(t.Context(), "k"); err != nil || r.NotFound ||
			r.Status != cacheguard.StatusHit {
			t.Errorf("Peek: %+v, %v; want a hit that exists", r, err)
		}
	})
	inBubble(t, "map", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[map[string]int]{}),
			openOn(t, store, cacheguard.Options[map[string]int]{})
		roundTrip(t, here, there, nil, func(a, b map[string]int) bool {
			return a == nil && b == nil
		})
	})
	inBubble(t, "interface", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[any]{}),
			openOn(t, store, cacheguard.Options[any]{})
		roundTrip(t, here, there, nil, func(a, b any) bool { return a == b })
	})
	inBubble(t, "raw JSON", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[json.RawMessage]{}),
			openOn(t, store, cacheguard.Options[json.RawMessage]{})
		roundTrip(t, here, there, json.RawMessage("null"), func(a, b json.RawMessage) bool {
			return bytes.Equal(a, b)
		})
	})
}

// TestForeignBytes: any bytes that are not a value are a miss, and the next load overwrites them.
func TestForeignBytes(t *testing.T) {
	whole := frame.New(frame.Header{ID: [16]byte{1}, Created: time.Now(), Soft: time.Hour},
		[]byte("foreign"))
	flipped := bytes.Clone(whole)
	flipped[20] ^= 1
	for name, raw := range map[string][]byte{
		"empty": {}, "text": []byte("text"), "version": append([]byte{99}, whole[1:]...),
		"cut": whole[:30], "flipped": flipped,
		"longer": append(bytes.Clone(whole), 0), "other codec": whole,
	} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			var corrupt int
			// A cache that asks for the lease at once takes fewer than 3 bytes for no value.
			c := openLookingFirst(t, store,
				cacheguard.Options[string]{Observer: observing(func(e cacheguard.Event) {
					if e.Kind == cacheguard.EventCorrupt {
						corrupt++
					}
				})})
			put(t, store, "k", raw)
			if r, err := c.Peek(t.Context(), "k"); err != nil ||
				r.Status != cacheguard.StatusMiss || r.Value != "" {
				t.Errorf("Peek: %+v, %v; want a miss", r, err)
			}
			getting(t.Context(), t, c, "k", returning("v")).gives("v", nil)
			getting(t.Context(), t, c, "k", failingWith[string](errOrigin)).gives("v", nil)
			if corrupt != 2 {
				t.Errorf("it was reported %d times; want once for each of the two who found it",
					corrupt)
			}
		})
	}
}

// TestNamedCodecs: values of another codec are misses, and nobody decodes what they can't read.
func TestNamedCodecs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		plain := openOn(t, store, cacheguard.Options[string]{})
		shouting := openOn(t, store, cacheguard.Options[string]{Codec: upperCase{}})
		getting(t.Context(), t, plain, "k", returning("v")).gives("v", nil)
		getting(t.Context(), t, shouting, "k", returning("w")).gives("w", nil)
		getting(t.Context(), t, shouting, "k", failingWith[string](errOrigin)).gives("W", nil)
		getting(t.Context(), t, plain, "k", returning("x")).gives("x", nil)

		// What does not exist is the same in all of them.
		getting(t.Context(), t, plain, "gone",
			failingWith[string](cacheguard.ErrNotFound)).gives("", cacheguard.ErrNotFound)
		getting(t.Context(), t, shouting, "gone", returning("unexpected")).gives("",
			cacheguard.ErrNotFound)
	})
}

type upperCase struct{}

func (upperCase) Name() string { return "upper case" }
func (upperCase) Append(dst []byte, v string) ([]byte, error) {
	return append(dst, strings.ToUpper(v)...), nil
}
func (upperCase) Decode(src []byte) (string, error) { return string(src), nil }

// TestDecodingFails: it is no value for this program, and no error for its callers.
func TestDecodingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		texts := openOn(t, store, cacheguard.Options[string]{Codec: cacheguard.JSON[string]{}})
		numbers := openOn(t, store, cacheguard.Options[int]{})
		getting(t.Context(), t, texts, "k", returning("text")).gives("text", nil)
		got, err := numbers.Get(t.Context(), "k", func(context.Context) (int, error) {
			return 7, nil
		})
		if got != 7 || err != nil {
			t.Errorf("Get: %v, %v", got, err)
		}
		if got, err := numbers.Get(t.Context(), "k", func(context.Context) (int, error) {
			return 0, errors.New("unexpected")
		}); got != 7 || err != nil {
			t.Errorf("Get: %v, %v", got, err)
		}
	})
}
