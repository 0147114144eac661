package coretest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// If a change has returned in another process before a call with StrongReads begins, the call gets
// no value from before the change. This holds for any running flights of its own process, even if
// no message about the change has arrived. The cost is one look-up, which all calls at the same
// time share.

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
func strongly(
	t *testing.T, c *cacheguard.Cache[int], way string, load cacheguard.LoadFunc[int],
) *begun[int] {
	return beginCall(t, func() (int, error) { return nestedWays[way](t.Context(), c, load) })
}

func TestStrongReadsGetNothingFromBefore(t *testing.T) {
	changes := map[string]func(context.Context, *cacheguard.Cache[int]) error{
		"Invalidate": func(ctx context.Context, c *cacheguard.Cache[int]) error {
			return c.Invalidate(ctx, "part")
		},
		"InvalidateAll": func(ctx context.Context, c *cacheguard.Cache[int]) error {
			return c.InvalidateAll(ctx)
		},
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
				p.store.late.Store(true)
				must(t, changes(t.Context(), p.other))
				late := []*begun[int]{
					strongly(t, p.near, way, returning(2)), strongly(t, p.near, way, returning(2)),
				}
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
				p.store.late.Store(true)
				must(t, changes(t.Context(), p.other))
				late := []*begun[int]{
					strongly(t, p.near, way, returning(2)), strongly(t, p.near, way, returning(2)),
				}
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

// What is loaded while the store can't be read counts as long as that is so.
func TestStrongReadsAfterTheStoreWasDown(t *testing.T) {
	for way := range nestedWays {
		inBubble(t, way, func(t *testing.T) {
			p := strongPair(t, cacheguard.Options[int]{})
			p.store.down.Store(true)
			o := newScriptedOrigin[int](t)
			first := way
			if way == "GetMany" { // whose reads the store doesn't fail here
				first = "Get"
			}
			early := strongly(t, p.near, first, o.load)
			load := o.next()
			p.store.down.Store(false)
			time.Sleep(5 * time.Second)
			getting(t.Context(), t, p.near, "another", returning(7)).gives(7, nil)
			p.store.late.Store(true)
			must(t, p.other.Invalidate(t.Context(), "part"))
			late := strongly(t, p.near, way, returning(2))
			late.waits()
			load.gives(1)
			early.gives(1, nil)
			late.gives(2, nil)
		})
	}
	inBubble(t, "the answer to a fill is lost", func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		t.Cleanup(func() { _ = shared.Close() })
		store := &fillStore{listenStore: &listenStore{Store: shared}}
		other := openOn(t, cacheguard.Store(shared), cacheguard.Options[int]{StrongReads: true})
		near := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{StrongReads: true})
		o := newScriptedOrigin[int](t)
		early := strongly(t, near, "Get", o.load)
		load := o.next()
		store.late.Store(true)
		must(t, other.Set(t.Context(), "part", 2))
		late := strongly(t, near, "Get", returning(2))
		late.waits()
		store.loses.Store(true)
		load.gives(1)
		early.gives(1, nil)
		late.gives(2, nil)
	})
}

// fillStore is a listenStore whose answers to fills get lost.
type fillStore struct {
	*listenStore
	loses atomic.Bool
}

func (s *fillStore) Fill(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
) (cacheguard.FillAnswer, error) {
	ans, err := s.listenStore.Fill(ctx, k, g, f, ttl)
	if s.loses.Load() {
		return 0, errors.New("no answer")
	}
	return ans, err
}

// A value that is too large for a message is read when the message of its fill has come, and may
// have been marked by then.
func TestStrongReadsOfWhatIsMarked(t *testing.T) {
	for way := range nestedWays {
		inBubble(t, way, func(t *testing.T) {
			shared := memstore.New(memstore.Options{})
			t.Cleanup(func() { _ = shared.Close() })
			store := &heldStore{Store: shared}
			other := openOn(t, cacheguard.Store(shared), cacheguard.Options[int]{StrongReads: true})
			near := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{StrongReads: true})
			o := newScriptedOrigin[int](t)
			rival := strongly(t, other, way, o.load)
			load := o.next()
			early := strongly(t, near, way, returning(2))
			early.waits()
			store.hold()
			load.gives(1)
			rival.gives(1, nil)
			must(t, other.MarkStale(t.Context(), "part"))
			late := strongly(t, near, way, returning(2))
			late.waits()
			store.next() // the fill's
			late.gives(2, nil)
			if v, err := early.now(); err != nil || v != 1 && v != 2 {
				t.Errorf("the early call returned %d, %v", v, err)
			}
		})
	}
}

// heldStore is a store whose messages carry no values and can be held back.
type heldStore struct {
	cacheguard.Store
	tell func(cacheguard.Message)

	mu    sync.Mutex // guards what follows
	holds bool
	kept  []cacheguard.Message
}

func (s *heldStore) Listen(cache string, tell func(cacheguard.Message)) func() {
	s.tell = tell
	return s.Store.Listen(cache, func(m cacheguard.Message) {
		m.Frame = nil
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.holds {
			s.kept = append(s.kept, m)
			return
		}
		tell(m)
	})
}

func (s *heldStore) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = true
}

// next lets the first one of those that are held back through.
func (s *heldStore) next() {
	s.mu.Lock()
	m := s.kept[0]
	s.kept = s.kept[1:]
	s.mu.Unlock()
	s.tell(m)
}

// Who was let in is not turned away because newcomers have filled the next flight.
func TestStrongReadsTurnNobodyAwayWhoWaited(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		p := strongPair(t, cacheguard.Options[int]{MaxWaiters: 2})
		o := newScriptedOrigin[int](t)
		calls := []*begun[int]{strongly(t, p.near, "Get", o.load)}
		early := o.next()
		calls = append(calls, strongly(t, p.near, "Get", o.load))
		calls[1].waits()
		must(t, p.other.Invalidate(t.Context(), "part")) // which seals their flight
		calls = append(calls, strongly(t, p.near, "Get", o.load))
		late := o.next()
		calls = append(calls, strongly(t, p.near, "Get", o.load))
		calls[3].waits()
		early.gives(1)
		calls[0].gives(1, nil)
		calls[1].waits()
		late.gives(2)
		for _, c := range calls[1:] {
			if v, err := c.later(); v != 2 || err != nil {
				t.Errorf("a caller got %d, %v", v, err)
			}
		}
	})
}

// A load's error, and what is loaded while the store can't be used, is for all who waited for it:
// asking again would be one more load.
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

// A call joins a flight that is just reading what another process has loaded. The value in this
// answer may be from before a change, so the call gets what is found after it came.
func TestStrongReadsDuringTheReadOfALoadedValue(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		store, opts := &listenStore{Store: shared}, cacheguard.Options[string]{StrongReads: true}
		other, near := openOn(t, cacheguard.Store(shared), opts),
			openOn(t, cacheguard.Store(store), opts)
		o := newScriptedOrigin[string](t)
		getting(t.Context(), t, other, "k", o.load)
		load := o.next()
		early := getting(t.Context(), t, near, "k", returning("new"))
		early.waits()
		gate := make(chan struct{})
		store.hold.Store(&gate)
		load.gives(largeValue)
		early.waits() // its process has read the value, and the answer is on its way
		store.hold.Store(nil)
		store.late.Store(true)
		must(t, other.Invalidate(t.Context(), "k"))
		late := getting(t.Context(), t, near, "k", returning("new"))
		late.waits()
		close(gate)
		early.gives(largeValue, nil)
		late.gives("new", nil)
	})
}
