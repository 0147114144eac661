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

var errTampered = errors.New("the store was tampered with")

// tampered is a memstore whose steps a test can watch, hold up and fail, each by its name.
type tampered struct {
	*memstore.Store
	mu     sync.Mutex // guards the rest
	before map[string]hook
	after  map[string]hook
	count  map[string]int
	key    cacheguard.Key   // of the last step
	grant  cacheguard.Grant // the last one
}

// hook is called with the context of a step. Its error is what the step's caller gets.
type hook func(ctx context.Context) error

func newTampered() *tampered {
	return &tampered{
		Store:  memstore.New(memstore.Options{}),
		before: make(map[string]hook), after: make(map[string]hook), count: make(map[string]int),
	}
}

// onto sets a hook that is called before a step. If the hook returns an error, the step is not
// done. A nil hook removes the hook.
func (s *tampered) onto(step string, h hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before[step] = h
}

// past sets a hook that is called after a step. If the hook returns an error, the step's reply is
// lost.
func (s *tampered) past(step string, h hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after[step] = h
}

// steps returns how often a step was requested.
func (s *tampered) steps(step string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[step]
}

// asked returns the key of the last step.
func (s *tampered) asked() cacheguard.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key
}

// fails returns a hook that fails the first n times.
func fails(n int) hook {
	var mu sync.Mutex
	return func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if n > 0 {
			n--
			return errTampered
		}
		return nil
	}
}

// always is for hooks that never stop failing.
const always = 1 << 30

func (s *tampered) step(ctx context.Context, name string, k cacheguard.Key, do func() error) error {
	s.mu.Lock()
	before, after := s.before[name], s.after[name]
	s.count[name]++
	s.key = k
	s.mu.Unlock()
	if before != nil {
		if err := before(ctx); err != nil {
			return err
		}
	}
	err := do()
	if after != nil {
		if err := after(ctx); err != nil {
			return err
		}
	}
	return err
}

func (s *tampered) Get(
	ctx context.Context, k cacheguard.Key, tags []string,
) (f []byte, of cacheguard.Generations, err error) {
	err = s.step(ctx, "Get", k, func() (err error) {
		f, of, err = s.Store.Get(ctx, k, tags)
		return err
	})
	return f, of, err
}

func (s *tampered) Clock(ctx context.Context, cache string) (at int64, err error) {
	err = s.step(ctx, "Clock", cacheguard.Key{Cache: cache}, func() (err error) {
		at, err = s.Store.Clock(ctx, cache)
		return err
	})
	return at, err
}

func (s *tampered) GetMany(
	ctx context.Context, keys []cacheguard.Key, tags []string,
) (replies []cacheguard.Reply[[]byte], of cacheguard.Generations) {
	err := s.step(ctx, "GetMany", keys[0], func() error {
		replies, of = s.Store.GetMany(ctx, keys, tags)
		return nil
	})
	return failedAll(replies, len(keys), err), of
}

func (s *tampered) LeaseMany(
	ctx context.Context, keys []cacheguard.Key, asks []cacheguard.LeaseAsk,
) (replies []cacheguard.Reply[cacheguard.LeaseAnswer]) {
	err := s.step(ctx, "LeaseMany", keys[0], func() error {
		replies = s.Store.LeaseMany(ctx, keys, asks)
		return nil
	})
	return failedAll(replies, len(keys), err)
}

// failedAll makes an error that of all replies.
func failedAll[T any](replies []cacheguard.Reply[T], n int, err error) []cacheguard.Reply[T] {
	if err != nil {
		replies = make([]cacheguard.Reply[T], n)
		for i := range replies {
			replies[i].Err = err
		}
	}
	return replies
}

func (s *tampered) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (a cacheguard.LeaseAnswer, err error) {
	err = s.step(ctx, "Lease", k, func() (err error) {
		if a, err = s.Store.Lease(ctx, k, ask); a.State == cacheguard.LeaseGranted {
			s.mu.Lock()
			s.grant = a.Grant
			s.mu.Unlock()
		}
		return err
	})
	return a, err
}

func (s *tampered) TakePermit(
	ctx context.Context, budget string, token cacheguard.ID, max int, ttl time.Duration,
) (taken bool, wait time.Duration, err error) {
	err = s.step(ctx, "TakePermit", cacheguard.Key{Key: budget}, func() (err error) {
		taken, wait, err = s.Store.TakePermit(ctx, budget, token, max, ttl)
		return err
	})
	return taken, wait, err
}

// granted returns the token of the last lease that was granted.
func (s *tampered) granted() cacheguard.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grant.Token
}

func (s *tampered) Fill(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
) (a cacheguard.FillAnswer, err error) {
	err = s.step(ctx, "Fill", k, func() (err error) {
		a, err = s.Store.Fill(ctx, k, g, f, ttl)
		return err
	})
	return a, err
}

func (s *tampered) Conclude(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
	keep, backoff time.Duration,
) error {
	return s.step(ctx, "Conclude", k, func() error {
		return s.Store.Conclude(ctx, k, g, o, keep, backoff)
	})
}

func (s *tampered) Renew(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
) (h cacheguard.Holding, err error) {
	err = s.step(ctx, "Renew", k, func() (err error) {
		h, err = s.Store.Renew(ctx, k, g, ttl)
		return err
	})
	return h, err
}

func (s *tampered) Release(ctx context.Context, k cacheguard.Key, token cacheguard.ID) error {
	return s.step(ctx, "Release", k, func() error { return s.Store.Release(ctx, k, token) })
}

func (s *tampered) Claim(
	ctx context.Context, k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
) (g cacheguard.Grant, err error) {
	err = s.step(ctx, "Claim", k, func() (err error) {
		g, err = s.Store.Claim(ctx, k, token, ttl)
		return err
	})
	return g, err
}

func (s *tampered) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	return s.step(ctx, "Invalidate", keys[0], func() error { return s.Store.Invalidate(ctx, keys) })
}

func (s *tampered) MarkStale(
	ctx context.Context, keys []cacheguard.Key, at int, mark []byte,
) error {
	return s.step(ctx, "MarkStale", keys[0], func() error {
		return s.Store.MarkStale(ctx, keys, at, mark)
	})
}

func (s *tampered) InvalidateTags(
	ctx context.Context, cache string, tags []string,
) (generation int64, err error) {
	err = s.step(ctx, "InvalidateTags", cacheguard.Key{Cache: cache}, func() (err error) {
		generation, err = s.Store.InvalidateTags(ctx, cache, tags)
		return err
	})
	return generation, err
}

// leaseFree asks the store whether a load of the key could begin now.
func leaseFree(t *testing.T, store interface {
	Lease(context.Context, cacheguard.Key, cacheguard.LeaseAsk) (cacheguard.LeaseAnswer, error)
	Release(context.Context, cacheguard.Key, cacheguard.ID) error
}, key string) bool {
	t.Helper()
	k, token := cacheguard.Key{Cache: "behave", Key: key}, cacheguard.ID{1, 2, 3}
	a, err := store.Lease(context.Background(), k,
		cacheguard.LeaseAsk{Token: token, TTL: time.Minute})
	if err != nil {
		t.Fatalf("Lease: %v", err)
	}
	if a.State == cacheguard.LeaseGranted {
		if err := store.Release(context.Background(), k, token); err != nil {
			t.Fatalf("Release: %v", err)
		}
	}
	return a.State != cacheguard.LeaseHeld
}

type gatedLease struct {
	cacheguard.Store
	gate atomic.Pointer[chan struct{}]
}

func (s *gatedLease) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	if g := s.gate.Load(); g != nil {
		<-*g
	}
	return s.Store.Lease(ctx, k, ask)
}

// slowRead is a store whose reads take a while, but end with their context.
type slowRead struct {
	cacheguard.Store
	took atomic.Int64
}

func (s *slowRead) Get(
	ctx context.Context, k cacheguard.Key, tags []string,
) ([]byte, cacheguard.Generations, error) {
	select {
	case <-time.After(time.Duration(s.took.Load())):
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	return s.Store.Get(ctx, k, tags)
}

// speaking is a store for which a test can speak to its caches, and answer for it when the lease is
// asked for.
type speaking struct {
	*tampered
	lease func(cacheguard.LeaseAnswer) cacheguard.LeaseAnswer // nil: as it is

	mu   sync.Mutex // guards tell
	tell []func(cacheguard.Message)
}

func (s *speaking) Listen(cache string, tell func(cacheguard.Message)) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell = append(s.tell, tell)
	return s.tampered.Listen(cache, tell)
}

func (s *speaking) says(m cacheguard.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tell := range s.tell {
		tell(m)
	}
}

func (s *speaking) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	ans, err := s.tampered.Lease(ctx, k, ask)
	if err == nil && s.lease != nil {
		ans = s.lease(ans)
	}
	return ans, err
}
