package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// inedible is a codec that fails for one value.
type inedible struct{}

func (inedible) Append(dst []byte, v string) ([]byte, error) {
	if v == poison {
		return nil, errTampered
	}
	return append(dst, v...), nil
}

func (inedible) Decode(src []byte) (string, error) { return string(src), nil }

// TestValueThatCantBeStored goes to its callers. Other processes load for themselves, all at the
// same time, and their own callers share that.
func TestValueThatCantBeStored(t *testing.T) {
	large := strings.Repeat("v", 101)
	for name, c := range map[string]struct {
		opts  cacheguard.Options[string]
		value string
		why   error
	}{
		"too large": {
			cacheguard.Options[string]{MaxValueSize: 100}, large, cacheguard.ErrTooLarge,
		},
		"not encoded": {cacheguard.Options[string]{Codec: inedible{}}, poison, errTampered},
	} {
		inBubble(t, name, func(t *testing.T) {
			const processes, callers = 5, 3
			events := &guardtest.Recorder{}
			c.opts.Observer, c.opts.Logger = events, slog.New(slog.DiscardHandler)
			fleet := guardtest.NewFleet(t, processes, c.opts)
			o := guardtest.NewOrigin(t, func(string) string { return c.value })
			o.Inject(guardtest.Fault{Takes: time.Second})
			for i, a := range fleet.Stampede(t.Context(), "k", callers, o.Load("k")) {
				if a.Result.Value != c.value || a.Err != nil {
					t.Errorf("caller %d got %d bytes, %v", i, len(a.Result.Value), a.Err)
				}
				if a.Took > 2*time.Second {
					t.Errorf("caller %d got it after %v: one load after another", i, a.Took)
				}
			}
			if n := o.Loads(); n != processes {
				t.Errorf("there were %d loads; want one for each process", n)
			}
			if told := events.Events(cacheguard.EventNotStored); len(told) == 0 {
				t.Error("the observer was not told that it was not stored")
			} else if err := told[0].Err; !errors.Is(err, c.why) {
				t.Errorf("the observer was told %v; want %v", err, c.why)
			}
			if r, err := fleet.Replica(0).Peek(t.Context(),
				"k"); r.Status != cacheguard.StatusMiss || err != nil {
				t.Errorf("Peek: %+v, %v", r, err)
			}
			getting(t.Context(), t, fleet.Replica(0), "k", returning("v")).gives("v", nil)
			getting(t.Context(), t, fleet.Replica(1), "k", returning("unexpected")).gives("v", nil)
		})
	}
}

// TestLargestValue is stored: the bound is on what is above it.
func TestLargestValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}),
			cacheguard.Options[string]{MaxValueSize: 100})
		largest := strings.Repeat("v", 100)
		getting(t.Context(), t, c, "k", returning(largest)).gives(largest, nil)
		getting(t.Context(), t, c, "k", returning("unexpected")).gives(largest, nil)
	})
}

// TestWritingWhatCantBeStored removes what was there: it is out of date.
func TestWritingWhatCantBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}),
			cacheguard.Options[string]{MaxValueSize: 10, Codec: poisonous{in: true}})
		writes := map[string]struct {
			write func() error
			fails bool
		}{
			"Set too large": {func() error {
				return c.Set(t.Context(), "k", "more than ten bytes")
			}, true},
			"Set that panics": {func() error { return c.Set(t.Context(), "k", poison) }, true},
			"Update too large": {func() error {
				_, err := c.Update(t.Context(), "k", returning("more than ten bytes"))
				return err
			}, false},
		}
		for name, w := range writes {
			if err := c.Set(t.Context(), "k", "old"); err != nil {
				t.Fatal(err)
			}
			if err := w.write(); (err != nil) != w.fails {
				t.Errorf("%s: %v", name, err)
			}
			if r, err := c.Peek(t.Context(), "k"); r.Status != cacheguard.StatusMiss || err != nil {
				t.Errorf("%s leaves %+v, %v", name, r, err)
			}
		}
		if err := c.Set(t.Context(), "k", "more than ten bytes"); !errors.Is(err,
			cacheguard.ErrTooLarge) {
			t.Errorf("Set: %v; want %v", err, cacheguard.ErrTooLarge)
		}
	})
}

// TestResultTooLargeToCarry is one that is not to be stored and does not fit into a message.
func TestResultTooLargeToCarry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		var calls []*begun[cacheguard.Result[string]]
		load := func(name string) cacheguard.LoadFunc[entry] {
			return func(context.Context) (entry, error) {
				<-time.After(time.Second)
				return entry{Value: strings.Repeat(name, 10<<10), NoStore: true}, nil
			}
		}
		for i := range 4 {
			calls = append(calls,
				gettingEntry(t.Context(), t, openOn(t, store, cacheguard.Options[string]{}), "k",
					load(fmt.Sprint(i))))
		}
		for i, call := range calls {
			if r, err := call.later(); r.Value != strings.Repeat(fmt.Sprint(i), 10<<10) ||
				err != nil || call.took > 2*time.Second {
				t.Errorf("caller %d got %d bytes, %v after %v", i, len(r.Value), err, call.took)
			}
		}
	})
}
