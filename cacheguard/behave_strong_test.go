package cacheguard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// With StrongReads a call gets nothing from before a change that had returned in another process when it was begun, whatever
// its own process has under way, although no message of it has arrived; and it pays for that with one look-up, shared with
// all who come at the same time.

func strongPair(t *testing.T, opts cacheguard.Options[int]) pair {
	shared := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = shared.Close() })
	opts.StrongReads = true
	p := pair{store: &listenStore{Store: shared}}
	p.other = openOn(t, cacheguard.Store(shared), opts)
	p.near = openOn(t, cacheguard.Store(p.store), opts)
	return p
}

// strongly begins a call on one of the ways.
func strongly(t *testing.T, c *cacheguard.Cache[int], way string, load cacheguard.LoadFunc[int]) *begun[int] {
	return beginCall(t, func() (int, error) { return nestedWays[way](t.Context(), c, load) })
}

func TestStrongReadsGetNothingFromBefore(t *testing.T) {
	changes := map[string]func(context.Context, *cacheguard.Cache[int]) error{
		"Invalidate":    func(ctx context.Context, c *cacheguard.Cache[int]) error { return c.Invalidate(ctx, "part") },
		"InvalidateAll": func(ctx context.Context, c *cacheguard.Cache[int]) error { return c.InvalidateAll(ctx) },
	}
	for way := range nestedWays {
		for change, changes := range changes {
			inBubble(t, way+" while it is read/"+change, func(t *testing.T) {
				p := strongPair(t, cacheguard.Options[int]{})
				must(t, p.other.Set(t.Context(), "part", 1))
				gate := make(chan struct{})
				p.store.hold.Store(&gate)
				first := way
				if way == "GetMany" { // it reads for itself, but joins flights
					first = "Get"
				}
				early := strongly(t, p.near, first, returning(2))
				early.waits()
				p.store.hold.Store(nil)
				p.store.deaf.Store(true) // the message is on its way
				must(t, changes(t.Context(), p.other))
				late := []*begun[int]{strongly(t, p.near, way, returning(2)), strongly(t, p.near, way, returning(2))}
				close(gate)
				if v, err := early.now(); err != nil || v != 1 && v != 2 {
					t.Errorf("the early call returned %d, %v", v, err)
				}
				for _, c := range late {
					c.gives(2, nil)
				}
			})
			inBubble(t, way+" while it is loaded/"+change, func(t *testing.T) {
				p := strongPair(t, cacheguard.Options[int]{})
				o := newScriptedOrigin[int](t)
				early := strongly(t, p.near, way, o.load)
				load := o.next()
				p.store.deaf.Store(true)
				must(t, changes(t.Context(), p.other))
				late := []*begun[int]{strongly(t, p.near, way, returning(2)), strongly(t, p.near, way, returning(2))}
				late[1].waits()
				load.gives(1)
				early.gives(1, nil)
				for _, c := range late {
					c.gives(2, nil)
				}
			})
		}
	}
}

// A value past its TTL is offered to those whose SoftTimeout is over, but not to who came after it was looked up: it may
// be gone by then.
func TestStrongReadsAreOfferedNothingFromBefore(t *testing.T) {
	for _, way := range []string{"Get", "GetMany"} {
		inBubble(t, way, func(t *testing.T) {
			p := strongPair(t, cacheguard.Options[int]{TTL: time.Second, StaleIfError: time.Hour, SoftTimeout: time.Second})
			must(t, p.other.Set(t.Context(), "part", 1))
			time.Sleep(2 * time.Second)
			o := newScriptedOrigin[int](t)
			early := strongly(t, p.near, way, o.load)
			o.next()
			p.store.deaf.Store(true)
			must(t, p.other.Invalidate(t.Context(), "part"))
			late := strongly(t, p.near, way, o.load)
			late.waits()
			time.Sleep(time.Second)
			early.gives(1, nil)
			o.next().gives(2)
			late.gives(2, nil)
		})
	}
}

// While nothing changes there is one load, and one more look-up for all who came while it ran.
func TestStrongReadsShare(t *testing.T) {
	for _, way := range []string{"Get", "GetMany"} {
		for _, leads := range []bool{true, false} {
			name := way + " in another process"
			if leads {
				name = way + " in this process"
			}
			inBubble(t, name, func(t *testing.T) {
				p := strongPair(t, cacheguard.Options[int]{})
				o := newScriptedOrigin[int](t)
				first := p.other
				if leads {
					first = p.near
				}
				calls := []*begun[int]{strongly(t, first, way, o.load)}
				load := o.next()
				if !leads {
					calls = append(calls, strongly(t, p.near, way, o.load))
					calls[1].waits()
				}
				for range 50 {
					calls = append(calls, strongly(t, p.near, "Get", o.load))
				}
				calls[len(calls)-1].waits()
				before, gate := p.store.reads.Load(), make(chan struct{})
				p.store.hold.Store(&gate)
				load.gives(1)
				calls[len(calls)-1].waits()
				close(gate)
				for _, c := range calls {
					c.gives(1, nil)
				}
				o.loads(1)
				if n := p.store.reads.Load() - before; n != 1 {
					t.Errorf("%d look-ups after the load", n)
				}
			})
		}
	}
}

// A load's error, and what is loaded while the store can't be used, is for all who waited for it: asking again would be
// one more load.
func TestStrongReadsAskOnceForWhatIsNoValue(t *testing.T) {
	inBubble(t, "an error", func(t *testing.T) {
		p := strongPair(t, cacheguard.Options[int]{ErrorTTL: -1})
		o := newScriptedOrigin[int](t)
		calls := []*begun[int]{strongly(t, p.near, "Get", o.load)}
		load := o.next()
		for _, way := range []string{"Get", "GetMany"} {
			calls = append(calls, strongly(t, p.near, way, o.load))
		}
		calls[2].waits()
		load.fails(errOrigin)
		for _, c := range calls {
			c.gives(0, errOrigin)
		}
		o.loads(1)
	})
	inBubble(t, "the store is down", func(t *testing.T) {
		p := strongPair(t, cacheguard.Options[int]{})
		p.store.down.Store(true)
		o := newScriptedOrigin[int](t)
		calls := []*begun[int]{strongly(t, p.near, "Get", o.load)}
		load := o.next()
		calls = append(calls, strongly(t, p.near, "Get", o.load))
		calls[1].waits()
		load.gives(1)
		for _, c := range calls {
			c.gives(1, nil)
		}
		o.loads(1)
	})
	inBubble(t, "a load that asks for itself", func(t *testing.T) {
		p := strongPair(t, cacheguard.Options[int]{})
		c := getting(t.Context(), t, p.near, "part", func(ctx context.Context) (int, error) {
			return p.near.Get(ctx, "part", returning(1))
		})
		c.gives(0, cacheguard.ErrRecursion)
	})
	inBubble(t, "a caller who leaves", func(t *testing.T) {
		p := strongPair(t, cacheguard.Options[int]{})
		o := newScriptedOrigin[int](t)
		strongly(t, p.near, "Get", o.load)
		load := o.next()
		ctx, cancel := context.WithCancelCause(t.Context())
		leaver := getting(ctx, t, p.near, "part", o.load)
		leaver.waits()
		cancel(errors.New("tired"))
		leaver.gives(0, context.Canceled)
		load.gives(1)
	})
}
