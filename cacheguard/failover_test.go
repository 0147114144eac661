package cacheguard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// twoServers is a store on a server and its replica, which has nothing but what a test gives it,
// and takes the server's place when the test says so.
type twoServers struct {
	*memstore.Store
	replica *memstore.Store
	serves  atomic.Pointer[memstore.Store]
	tell    atomic.Pointer[[]func(cacheguard.Message)]
}

func newTwoServers() *twoServers {
	s := &twoServers{Store: memstore.New(memstore.Options{}), replica: memstore.New(memstore.Options{})}
	s.serves.Store(s.Store)
	s.tell.Store(&[]func(cacheguard.Message){})
	return s
}

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

func (s *twoServers) Get(ctx context.Context, k cacheguard.Key, tags []string) ([]byte, cacheguard.Generations, error) {
	return s.serves.Load().Get(ctx, k, tags)
}

func (s *twoServers) GetMany(ctx context.Context, keys []cacheguard.Key, tags []string) ([]cacheguard.Reply[[]byte], cacheguard.Generations) {
	return s.serves.Load().GetMany(ctx, keys, tags)
}

func (s *twoServers) Generations(ctx context.Context, cache string, tags []string) (cacheguard.Generations, error) {
	return s.serves.Load().Generations(ctx, cache, tags)
}

func (s *twoServers) InvalidateTags(ctx context.Context, cache string, tags []string) (int64, error) {
	return s.serves.Load().InvalidateTags(ctx, cache, tags)
}

func (s *twoServers) Lease(ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk) (cacheguard.LeaseAnswer, error) {
	return s.serves.Load().Lease(ctx, k, ask)
}

func (s *twoServers) Fill(ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration) (cacheguard.FillAnswer, error) {
	return s.serves.Load().Fill(ctx, k, g, f, ttl)
}

func (s *twoServers) MarkStale(ctx context.Context, keys []cacheguard.Key, at int, mark []byte) error {
	return s.serves.Load().MarkStale(ctx, keys, at, mark)
}

func (s *twoServers) Claim(ctx context.Context, k cacheguard.Key, token cacheguard.ID, ttl time.Duration) (cacheguard.Grant, error) {
	return s.serves.Load().Claim(ctx, k, token, ttl)
}

func (s *twoServers) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	return s.serves.Load().Invalidate(ctx, keys)
}

// What a server has acknowledged and its successor doesn't know is repeated, whatever happens to
// the subscription before: it may be interrupted and restored while the server is still there, or
// for longer than changes are remembered.
func TestAcknowledgedChangesSurviveAFailover(t *testing.T) {
	for when, before := range map[string]func(t *testing.T, s *twoServers, c *cacheguard.Cache[string]){
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
		for name, change := range maps.All(changesOfK) {
			inBubble(t, when+", "+name, func(t *testing.T) {
				s := newTwoServers()
				here, there := openOn(t, s, cacheguard.Options[string]{}), openOn(t, s, cacheguard.Options[string]{})
				for _, server := range []*memstore.Store{s.replica, s.Store} {
					s.serves.Store(server)
					entryOf(t, there, "old")
				}
				time.Sleep(time.Second)
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

// That holds for what another release has stored, too, also if this one has a new value by then.
func TestAcknowledgedChangesOfAllVersionsSurviveAFailover(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		s := newTwoServers()
		here, there := openOn(t, s, cacheguard.Options[string]{Version: 4}), openOn(t, s, cacheguard.Options[string]{Version: 5})
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

// A process is subscribed by its first change. What it has changed before messages arrive for the
// first time isn't repeated, for nothing was interrupted; if a try has failed before that, it is.
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
			store.tell(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: store.Now().UnixMicro()})
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

// Changes that can't be delivered, however many they are, don't hold up those that can.
func TestDeliveryBesideWhatCantBeDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPartial()
		c := openOn(t, store, cacheguard.Options[string]{})
		store.lacks.Store(&[]string{"bad", "good"})
		for i := range 8000 {
			if err := c.Invalidate(t.Context(), fmt.Sprint("bad ", i)); !errors.Is(err, cacheguard.ErrPending) {
				t.Fatal(err)
			}
		}
		for i := range 10 {
			if err := c.Invalidate(t.Context(), fmt.Sprint("good ", i)); !errors.Is(err, cacheguard.ErrPending) {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		store.lacks.Store(&[]string{"bad"})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := c.Stats().Unsent; n != 8000 {
			t.Errorf("%d changes are left", n)
		}
		store.lacks.Store(&[]string{"bad 0", "bad 4", "bad 7"}) // the oldest and the newest ones, too
		time.Sleep(5*time.Minute + 10*time.Second)
		synctest.Wait()
		if n := c.Stats().Unsent; n != 1+1111+1111 {
			t.Errorf("%d changes are left of those that can be delivered", n)
		}
		store.lacks.Store(&[]string{})
		if err := c.Flush(t.Context()); err != nil || c.Stats().Unsent != 0 {
			t.Errorf("%v, %d left", err, c.Stats().Unsent)
		}
	})
}

// partial is a store that can't be told of keys that begin with certain words.
type partial struct {
	*tampered
	lacks atomic.Pointer[[]string]
}

func newPartial() *partial {
	s := &partial{tampered: newTampered()}
	s.lacks.Store(&[]string{})
	return s
}

func (s *partial) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	failed := cacheguard.KeyErrors{}
	var rest []cacheguard.Key
	for _, k := range keys {
		rest = append(rest, k)
		for _, word := range *s.lacks.Load() {
			if strings.HasPrefix(k.Key, word) {
				failed[k.Key], rest = errTampered, rest[:len(rest)-1]
				break
			}
		}
	}
	if len(rest) > 0 {
		if err := s.tampered.Invalidate(ctx, rest); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return failed
	}
	return nil
}
