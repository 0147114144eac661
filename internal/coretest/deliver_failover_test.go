package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// twoServers is a store on a server and its replica. The replica has only the data that a test
// gives it. It takes the server's place when the test calls for a failover.
type twoServers struct {
	*memstore.Store
	replica *memstore.Store
	back    time.Duration // the clock was set back by so much after the last grant
	serves  atomic.Pointer[memstore.Store]
	tell    atomic.Pointer[[]func(cacheguard.Message)]
}

func newTwoServers() *twoServers {
	s := &twoServers{
		Store: memstore.New(memstore.Options{}), replica: memstore.New(memstore.Options{}),
	}
	s.serves.Store(s.Store)
	s.tell.Store(&[]func(cacheguard.Message){})
	return s
}

// bothHaveOld opens the caches of two processes on as, which is s or wraps it. Both servers have
// the entry "old", which was stored a second ago.
func (s *twoServers) bothHaveOld(
	t *testing.T, as cacheguard.Store,
) (here, there *cacheguard.Cache[string]) {
	t.Helper()
	here = openOn(t, as, cacheguard.Options[string]{})
	there = openOn(t, as, cacheguard.Options[string]{})
	for _, server := range []*memstore.Store{s.replica, s.Store} {
		s.serves.Store(server)
		entryOf(t, there, "old")
	}
	time.Sleep(time.Second) // on the bubble's clock
	return here, there
}

func (s *twoServers) Now() time.Time { return s.Store.Now().Add(-s.back) }

func (s *twoServers) Listen(cache string, tell func(cacheguard.Message)) (stop func()) {
	all := append(*s.tell.Load(), tell)
	s.tell.Store(&all)
	tell(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: s.Now().UnixMicro()})
	return func() {}
}

func (s *twoServers) says(kind cacheguard.MessageKind) {
	for _, tell := range *s.tell.Load() {
		tell(cacheguard.Message{Kind: kind, Generation: s.Now().UnixMicro()})
	}
}

func (s *twoServers) Get(
	ctx context.Context, k cacheguard.Key, tags []string,
) ([]byte, cacheguard.Generations, error) {
	return s.serves.Load().Get(ctx, k, tags)
}

func (s *twoServers) GetMany(
	ctx context.Context, keys []cacheguard.Key, tags []string,
) ([]cacheguard.Reply[[]byte], cacheguard.Generations) {
	return s.serves.Load().GetMany(ctx, keys, tags)
}

func (s *twoServers) Generations(
	ctx context.Context, cache string, tags []string,
) (cacheguard.Generations, error) {
	return s.serves.Load().Generations(ctx, cache, tags)
}

func (s *twoServers) InvalidateTags(
	ctx context.Context, cache string, tags []string,
) (int64, error) {
	return s.serves.Load().InvalidateTags(ctx, cache, tags)
}

func (s *twoServers) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	return s.serves.Load().Lease(ctx, k, ask)
}

func (s *twoServers) Fill(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
) (cacheguard.FillAnswer, error) {
	return s.serves.Load().Fill(ctx, k, g, f, ttl)
}

func (s *twoServers) MarkStale(
	ctx context.Context, keys []cacheguard.Key, at int, mark []byte,
) error {
	return s.serves.Load().MarkStale(ctx, keys, at, mark)
}

func (s *twoServers) Claim(
	ctx context.Context, k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
) (cacheguard.Grant, error) {
	return s.serves.Load().Claim(ctx, k, token, ttl)
}

func (s *twoServers) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	return s.serves.Load().Invalidate(ctx, keys)
}

// A change that a server has acknowledged and its successor doesn't know is repeated. This also
// holds if the subscription was interrupted and restored before the failover, or was interrupted
// for longer than changes are remembered, or the store's clock was set back.
func TestAcknowledgedChangesSurviveAFailover(t *testing.T) {
	for when, before := range map[string]func(t *testing.T, s *twoServers,
		c *cacheguard.Cache[string]){
		"at once": func(*testing.T, *twoServers, *cacheguard.Cache[string]) {},
		"after interruptions": func(t *testing.T, s *twoServers, c *cacheguard.Cache[string]) {
			for range 3 {
				time.Sleep(time.Second)
				s.says(cacheguard.MessageLost)
				time.Sleep(time.Second)
				s.says(cacheguard.MessageRestored)
				if err := c.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		},
		"after a minute": func(_ *testing.T, s *twoServers, _ *cacheguard.Cache[string]) {
			for range 3 {
				s.says(cacheguard.MessageLost)
				time.Sleep(20 * time.Second)
			}
		},
	} {
		for name, change := range changesOfK {
			for _, back := range []time.Duration{0, time.Hour} {
				name := fmt.Sprintf("%s, %s, clock %v back", when, name, back)
				inBubble(t, name, func(t *testing.T) {
					s := newTwoServers()
					s.back = back
					here, there := s.bothHaveOld(t, s)
					if got := entryOf(t, here, "unused"); got != "old" {
						t.Fatal(got)
					}
					if err := change(t.Context(), here); err != nil {
						t.Fatal(err)
					}
					before(t, s, here)
					s.serves.Store(s.replica)
					if got := entryOf(t, there, "unused"); got != "old" {
						t.Fatalf("%q: the change was not lost", got)
					}
					s.says(cacheguard.MessageRestored)
					if got := entryOf(t, here, "new"); got != "new" {
						t.Errorf("%q in the process that knows", got)
					}
					if err := here.Flush(t.Context()); err != nil {
						t.Error(err)
					}
					if got := entryOf(t, there, "new"); got != "new" {
						t.Errorf("%q", got)
					}
				})
			}
		}
	}
}

// failsOver is a store that fails over after a given number of steps that change something. A step
// changes a single key, or up to 256 tags.
type failsOver struct {
	*twoServers
	after atomic.Int32 // changing steps until the failover
}

// changed counts a step. After the last one, the replica takes the server's place, and messages are
// interrupted and restored, before the step's caller gets its answer.
func (s *failsOver) changed() {
	if s.after.Add(-1) == 0 {
		s.serves.Store(s.replica)
		s.says(cacheguard.MessageLost)
		s.says(cacheguard.MessageRestored)
	}
}

func (s *failsOver) Claim(
	ctx context.Context, k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
) (cacheguard.Grant, error) {
	defer s.changed()
	return s.twoServers.Claim(ctx, k, token, ttl)
}

func (s *failsOver) Fill(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
) (cacheguard.FillAnswer, error) {
	defer s.changed()
	return s.twoServers.Fill(ctx, k, g, f, ttl)
}

func (s *failsOver) Invalidate(ctx context.Context, keys []cacheguard.Key) (err error) {
	for i := range keys {
		err = errors.Join(err, s.twoServers.Invalidate(ctx, keys[i:i+1]))
		s.changed()
	}
	return err
}

func (s *failsOver) MarkStale(
	ctx context.Context, keys []cacheguard.Key, at int, mark []byte,
) (err error) {
	for i := range keys {
		err = errors.Join(err, s.twoServers.MarkStale(ctx, keys[i:i+1], at, mark))
		s.changed()
	}
	return err
}

func (s *failsOver) InvalidateTags(
	ctx context.Context, cache string, tags []string,
) (generation int64, err error) {
	for { // like a store that invalidates up to 256 tags in one step
		some := tags[:min(len(tags), 256)]
		generation, err = s.twoServers.InvalidateTags(ctx, cache, some)
		s.changed()
		if tags = tags[len(some):]; err != nil || len(tags) == 0 {
			return generation, err
		}
	}
}

// A change that a server has acknowledged is repeated, too, if the server's successor is there
// before the call that makes the change returns.
func TestChangesDuringAFailoverSurviveIt(t *testing.T) {
	for name, change := range maps.All(changesOfK) {
		for step := range int32(2) {
			inBubble(t, fmt.Sprintf("%s, step %d", name, step+1), func(t *testing.T) {
				s := &failsOver{twoServers: newTwoServers()}
				here, there := s.bothHaveOld(t, s)
				s.after.Store(step + 1)
				if err := change(t.Context(), here); err != nil {
					t.Fatal(err)
				}
				if got := entryOf(t, here, "new"); got == "old" {
					t.Errorf("%q in the process that has made the change", got)
				}
				if err := here.Flush(t.Context()); err != nil {
					t.Error(err)
				}
				if got := entryOf(t, there, "new"); got == "old" {
					t.Errorf("%q in another process", got)
				}
			})
		}
	}
}

// counting counts the keys that are invalidated.
type counting struct {
	*twoServers
	keys atomic.Int32
}

func (s *counting) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	s.keys.Add(int32(len(keys)))
	return s.twoServers.Invalidate(ctx, keys)
}

// A change that was under way while messages were interrupted is repeated alone. The earlier
// changes were repeated when messages were restored.
func TestChangeDuringAnInterruptionIsRepeatedAlone(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		s := &counting{twoServers: newTwoServers()}
		c := openOn(t, s, cacheguard.Options[string]{})
		write, updated := make(chan bool), make(chan error)
		go func() {
			_, err := c.Update(t.Context(), "updated", func(context.Context) (string, error) {
				<-write
				return "new", nil
			})
			updated <- err
		}()
		synctest.Wait()
		for i := range 100 {
			if err := c.Invalidate(t.Context(), fmt.Sprint("absent ", i)); err != nil {
				t.Fatal(err)
			}
		}
		s.says(cacheguard.MessageLost)
		s.says(cacheguard.MessageRestored)
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := s.keys.Load()
		if before != 200 {
			t.Fatalf("%d invalidations of 100 keys, want each twice", before)
		}
		time.Sleep(time.Second) // on the bubble's clock
		close(write)
		if err := <-updated; err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := s.keys.Load() - before; n > 1 {
			t.Errorf("%d keys were invalidated again after the update", n)
		}
	})
}

// If nothing was lost while messages were interrupted, nothing is repeated, however many tags were
// invalidated in one call.
func TestManyTagsAreNotInvalidatedTwice(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		s := &failsOver{twoServers: newTwoServers()}
		c := openOn(t, s, cacheguard.Options[string]{})
		tags := []string{"t"}
		for i := range 600 {
			tags = append(tags, fmt.Sprint("tag ", i))
		}
		if err := c.InvalidateTags(t.Context(), tags...); err != nil {
			t.Fatal(err)
		}
		entryOf(t, c, "v")
		s.says(cacheguard.MessageLost)
		s.says(cacheguard.MessageRestored)
		if err := c.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if got := entryOf(t, c, "other"); got != "v" {
			t.Errorf("%q: the value was invalidated again", got)
		}
		if n := c.Stats().SentLate; n != 0 {
			t.Errorf("%d changes count as late", n)
		}
	})
}

// The same holds for values that another release has stored, even if this release already has a new
// value.
func TestAcknowledgedChangesOfAllVersionsSurviveAFailover(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		s := newTwoServers()
		here, there := openOn(t, s, cacheguard.Options[string]{Version: 4}),
			openOn(t, s, cacheguard.Options[string]{Version: 5})
		for _, server := range []*memstore.Store{s.replica, s.Store} {
			s.serves.Store(server)
			entryOf(t, here, "old")
			entryOf(t, there, "old")
		}
		time.Sleep(time.Second)
		if err := here.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		s.serves.Store(s.replica)
		if _, err := here.Refresh(t.Context(), "k", returning("new")); err != nil {
			t.Fatal(err)
		}
		if got := entryOf(t, there, "unused"); got != "old" {
			t.Fatalf("%q: the change was not lost", got)
		}
		s.says(cacheguard.MessageRestored)
		if err := here.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if got := entryOf(t, there, "new"); got != "new" {
			t.Errorf("%q", got)
		}
	})
}

// A process subscribes with its first change. Changes from before the first messages aren't
// repeated, because nothing was interrupted. If a try to subscribe has failed before, they are
// repeated.
func TestFirstMessagesRepeatNothing(t *testing.T) {
	for name, fails := range map[string]bool{"at the first try": false, "at a later one": true} {
		inBubble(t, name, func(t *testing.T) {
			store := &unheard{tampered: newTampered()}
			c := openOn(t, store, cacheguard.Options[string]{})
			if err := c.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			o := newScriptedOrigin[string](t)
			loads := getting(t.Context(), t, c, "k", o.load)
			load := o.next()
			if fails {
				store.tell(cacheguard.Message{Kind: cacheguard.MessageLost})
			}
			store.tell(cacheguard.Message{
				Kind: cacheguard.MessageRestored, Generation: store.Now().UnixMicro(),
			})
			if err := c.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			load.gives("v")
			loads.gives("v", nil)
			want := cacheguard.StatusHit
			if fails {
				want = cacheguard.StatusMiss
			}
			if res, err := c.Peek(t.Context(), "k"); err != nil || res.Status != want {
				t.Errorf("%v (%v), want a %v", res.Status, err, want)
			}
		})
	}
}

// unheard is a store whose messages don't arrive but for what a test tells.
type unheard struct {
	*tampered
	tell func(cacheguard.Message)
}

func (s *unheard) Listen(_ string, tell func(cacheguard.Message)) func() {
	s.tell = tell
	return func() {}
}
