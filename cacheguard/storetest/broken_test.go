package storetest_test

import (
	"context"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

// broken is one process's view of a store with some of its steps replaced.
type broken struct {
	cacheguard.Store
	*memory
	process int

	get   func(k cacheguard.Key) ([]byte, error)
	lease func(k cacheguard.Key, ask cacheguard.LeaseAsk) (cacheguard.LeaseAnswer, error)
	fill  func(k cacheguard.Key, g cacheguard.Grant, f []byte,
		ttl time.Duration) (cacheguard.FillAnswer, error)
	conclude func(k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
		keep, backoff time.Duration) error
	renew func(k cacheguard.Key, g cacheguard.Grant,
		ttl time.Duration) (cacheguard.Holding, error)
	release func(k cacheguard.Key, token cacheguard.ID) error
	claim   func(k cacheguard.Key, token cacheguard.ID,
		ttl time.Duration) (cacheguard.Grant, error)
	invalidate func(keys []cacheguard.Key) error
	now        func() time.Time
	clock      func(cache string) (int64, error)

	generations func(cache string, tags []string) (cacheguard.Generations, error)
	withValue   func(k cacheguard.Key, tags []string,
		of cacheguard.Generations) cacheguard.Generations
	invalidateTags func(cache string, tags []string) (int64, error)
	markStale      func(keys []cacheguard.Key, at int, mark []byte) error
	getMany        func(keys []cacheguard.Key,
		tags []string) ([]cacheguard.Reply[[]byte], cacheguard.Generations)
	leaseMany func(keys []cacheguard.Key,
		asks []cacheguard.LeaseAsk) []cacheguard.Reply[cacheguard.LeaseAnswer]
	fillMany  func(fills []cacheguard.FillAsk) []cacheguard.Reply[cacheguard.FillAnswer]
	renewMany func(keys []cacheguard.Key, grants []cacheguard.Grant,
		ttl time.Duration) []cacheguard.Reply[cacheguard.Holding]

	listen func(cache string, tell func(cacheguard.Message)) func()
}

// memory is the data that the mutants of one fleet remember.
type memory struct {
	mu      sync.Mutex // guards the fields below
	grants  map[cacheguard.Key]cacheguard.Grant
	revived map[cacheguard.Grant]cacheguard.Grant
	ended   map[cacheguard.Key]ending
	filled  map[cacheguard.Grant]bool
	kept    map[cacheguard.Key][]byte
	tells   []func(cacheguard.Message)
}

type ending struct {
	load          cacheguard.ID
	outcome       cacheguard.Outcome
	keep, backoff time.Duration
}

func newMemory() *memory {
	return &memory{
		grants:  map[cacheguard.Key]cacheguard.Grant{},
		revived: map[cacheguard.Grant]cacheguard.Grant{},
		ended:   map[cacheguard.Key]ending{},
		filled:  map[cacheguard.Grant]bool{},
		kept:    map[cacheguard.Key][]byte{},
	}
}

func (m *memory) locked(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

// last returns the last grant of the key's lease.
func (m *memory) last(k cacheguard.Key) (g cacheguard.Grant) {
	m.locked(func() { g = m.grants[k] })
	return g
}

// translate returns the grant under which a revived lease goes on.
func (m *memory) translate(g cacheguard.Grant) cacheguard.Grant {
	m.locked(func() {
		if again, ok := m.revived[g]; ok {
			g = again
		}
	})
	return g
}

func (m *memory) tellAll(msg cacheguard.Message) {
	m.locked(func() {
		for _, tell := range m.tells {
			tell(msg)
		}
	})
}

// alive reports whether the last grant still has the lease. It then sets a long time for the lease.
func (b *broken) alive(k cacheguard.Key) bool {
	h, err := b.Store.Renew(context.Background(), k, b.last(k), time.Hour)
	return err == nil && h == cacheguard.HoldingMine
}

// If the lease was there before a step and the step has removed it, revive puts the lease back.
func (b *broken) revive(k cacheguard.Key, before bool) {
	if !before {
		return
	}
	old := b.last(k)
	v, _, _ := b.Store.Get(context.Background(), k, nil)
	answer, _ := b.Store.Lease(context.Background(), k,
		cacheguard.LeaseAsk{Token: old.Token, TTL: time.Hour, Seen: frame.ID(v)})
	b.locked(func() { b.grants[k], b.revived[old] = answer.Grant, answer.Grant })
}

func (b *broken) Get(
	ctx context.Context, k cacheguard.Key, tags []string,
) ([]byte, cacheguard.Generations, error) {
	f, of, err := b.Store.Get(ctx, k, tags)
	if b.get != nil {
		f, err = b.get(k)
	}
	if b.withValue != nil && f != nil {
		of = b.withValue(k, tags, of)
	}
	return f, of, err
}

func (b *broken) GetMany(
	ctx context.Context, keys []cacheguard.Key, tags []string,
) ([]cacheguard.Reply[[]byte], cacheguard.Generations) {
	if b.getMany != nil {
		return b.getMany(keys, tags)
	}
	return b.Store.GetMany(ctx, keys, tags)
}

func (b *broken) Generations(
	ctx context.Context, cache string, tags []string,
) (cacheguard.Generations, error) {
	if b.generations != nil {
		return b.generations(cache, tags)
	}
	return b.Store.Generations(ctx, cache, tags)
}

func (b *broken) InvalidateTags(ctx context.Context, cache string, tags []string) (int64, error) {
	if b.invalidateTags != nil {
		return b.invalidateTags(cache, tags)
	}
	return b.Store.InvalidateTags(ctx, cache, tags)
}

func (b *broken) MarkStale(ctx context.Context, keys []cacheguard.Key, at int, mark []byte) error {
	if b.markStale != nil {
		return b.markStale(keys, at, mark)
	}
	return b.Store.MarkStale(ctx, keys, at, mark)
}

func (b *broken) LeaseMany(
	ctx context.Context, keys []cacheguard.Key, asks []cacheguard.LeaseAsk,
) (replies []cacheguard.Reply[cacheguard.LeaseAnswer]) {
	if b.leaseMany != nil {
		replies = b.leaseMany(keys, asks)
	} else {
		replies = b.Store.LeaseMany(ctx, keys, asks)
	}
	b.locked(func() {
		for i, r := range replies {
			if r.Answer.State == cacheguard.LeaseGranted {
				b.grants[keys[i]] = r.Answer.Grant
			}
		}
	})
	return replies
}

func (b *broken) FillMany(
	ctx context.Context, fills []cacheguard.FillAsk,
) []cacheguard.Reply[cacheguard.FillAnswer] {
	if b.fillMany != nil {
		return b.fillMany(fills)
	}
	return b.Store.FillMany(ctx, fills)
}

func (b *broken) RenewMany(
	ctx context.Context, keys []cacheguard.Key, grants []cacheguard.Grant, ttl time.Duration,
) []cacheguard.Reply[cacheguard.Holding] {
	if b.renewMany != nil {
		return b.renewMany(keys, grants, ttl)
	}
	return b.Store.RenewMany(ctx, keys, grants, ttl)
}

func (b *broken) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (answer cacheguard.LeaseAnswer, err error) {
	if b.lease != nil {
		answer, err = b.lease(k, ask)
	} else {
		answer, err = b.Store.Lease(ctx, k, ask)
	}
	if answer.State == cacheguard.LeaseGranted {
		b.locked(func() { b.grants[k] = answer.Grant })
	}
	return answer, err
}

func (b *broken) Fill(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
) (cacheguard.FillAnswer, error) {
	g = b.translate(g)
	if b.fill != nil {
		return b.fill(k, g, f, ttl)
	}
	return b.Store.Fill(ctx, k, g, f, ttl)
}

func (b *broken) Conclude(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
	keep, backoff time.Duration,
) error {
	g = b.translate(g)
	b.locked(func() { b.ended[k] = ending{g.Token, o, keep, backoff} })
	if b.conclude != nil {
		return b.conclude(k, g, o, keep, backoff)
	}
	return b.Store.Conclude(ctx, k, g, o, keep, backoff)
}

func (b *broken) Renew(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
) (cacheguard.Holding, error) {
	g = b.translate(g)
	if b.renew != nil {
		return b.renew(k, g, ttl)
	}
	return b.Store.Renew(ctx, k, g, ttl)
}

func (b *broken) Release(ctx context.Context, k cacheguard.Key, token cacheguard.ID) error {
	if b.release != nil {
		return b.release(k, token)
	}
	return b.Store.Release(ctx, k, token)
}

func (b *broken) Claim(
	ctx context.Context, k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
) (g cacheguard.Grant, err error) {
	if b.claim != nil {
		g, err = b.claim(k, token, ttl)
	} else {
		g, err = b.Store.Claim(ctx, k, token, ttl)
	}
	b.locked(func() { b.grants[k] = g })
	return g, err
}

func (b *broken) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	if b.invalidate != nil {
		return b.invalidate(keys)
	}
	return b.Store.Invalidate(ctx, keys)
}

func (b *broken) Now() time.Time {
	if b.now != nil {
		return b.now()
	}
	return b.Store.Now()
}

func (b *broken) Clock(ctx context.Context, cache string) (int64, error) {
	if b.clock != nil {
		return b.clock(cache)
	}
	return b.Store.Clock(ctx, cache)
}

func (b *broken) Listen(cache string, tell func(cacheguard.Message)) (stop func()) {
	b.locked(func() { b.tells = append(b.tells, tell) })
	if b.listen != nil {
		return b.listen(cache, tell)
	}
	return b.Store.Listen(cache, tell)
}
