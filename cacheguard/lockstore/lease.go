package lockstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// Lease requests the lease from the store. If the store grants it, Lease also requests the lock.
// Most calls are not granted the lease, and never use the lock.
func (s *Store) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	asked := time.Now()
	answer, err := s.Store.Lease(ctx, k, ask)
	if err != nil || answer.State != cacheguard.LeaseGranted {
		return answer, err
	}
	return s.lockWithin(ctx, k, ask, answer, asked, make(chan struct{}, 1))
}

// LeaseMany is [Store.Lease] for many keys. Up to 16 locks are requested with TryLock at the same
// time.
func (s *Store) LeaseMany(
	ctx context.Context, keys []cacheguard.Key, asks []cacheguard.LeaseAsk,
) []cacheguard.Reply[cacheguard.LeaseAnswer] {
	asked := time.Now()
	replies := s.Store.LeaseMany(ctx, keys, asks)
	room := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range replies {
		if replies[i].Err == nil && replies[i].Answer.State == cacheguard.LeaseGranted {
			all.Go(func() {
				r := &replies[i]
				r.Answer, r.Err = s.lockWithin(ctx, keys[i], asks[i], r.Answer, asked, room)
			})
		}
	}
	all.Wait()
	return replies
}

// atOnce is the largest number of locks that a batch requests with TryLock at the same time. If
// other holders have some of the locks, the batch waits for all of these locks at the same time,
// without this limit.
const atOnce = 16

// lockWithin is lock for a caller with a context. If the context ends first, lockWithin returns its
// error, and lock goes on without the caller. So a caller with little time doesn't end the request
// for a lock: the locker would seem to have trouble, and the loads of other callers would have no
// lock. If the caller releases the lease, the lock is given back as soon as it is held.
func (s *Store) lockWithin(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk, granted cacheguard.LeaseAnswer,
	asked time.Time, room chan struct{},
) (cacheguard.LeaseAnswer, error) {
	of := load{k, ask.Token}
	// Begun here, so that a release of the lease finds it, however soon the release comes.
	kept, first := s.locks.begin(of, granted.Grant, ask.TTL)
	lock := func(ctx context.Context) cacheguard.LeaseAnswer {
		// If first is false, the load asks again, because it hasn't received the first answer, or s
		// is closed.
		if !first {
			<-kept.ready
			s.locks.extend(of, ask.TTL)
			return granted
		}
		return s.lock(ctx, of, kept, ask, granted, asked, room)
	}
	if ctx.Done() == nil {
		return lock(ctx), nil
	}
	answers := make(chan cacheguard.LeaseAnswer, 1)
	go func() { answers <- lock(context.WithoutCancel(ctx)) }()
	select {
	case answer := <-answers:
		return answer, nil
	case <-ctx.Done():
		return cacheguard.LeaseAnswer{}, ctx.Err()
	}
}

// lock acquires the lock for a load that has begun. If the lock is held, it gives the lease back.
// If the locker can't be used, the load has only its lease. lock ends before the lease has to be
// renewed for the first time, because nobody renews the lease until lock returns. It sends its
// request when room has a free place.
func (s *Store) lock(
	ctx context.Context, of load, kept *kept, ask cacheguard.LeaseAsk,
	granted cacheguard.LeaseAnswer, asked time.Time, room chan struct{},
) cacheguard.LeaseAnswer {
	var held lock.Lock
	defer func() { s.locks.end(of, kept, held, time.Now().Add(ask.TTL)) }()
	room <- struct{}{} // this doesn't take long, because the other requests leave after Patience
	by := asked.Add(ask.TTL / 3)
	within, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	if !s.usable() || within.Err() != nil {
		<-room
		return granted
	}
	hurried := time.Until(by) < min(s.opts.Patience, ask.TTL/3)/2
	held, err := s.acquire(within, lockName(of.key), func() { <-room })
	switch {
	case err == nil:
		s.recovered()
		return granted
	case errors.Is(err, lock.ErrHeld):
		// The lock is held by a load that has lost its lease and doesn't know it.
		s.recovered()
		// If this fails, the lease ends by itself.
		_ = s.Store.Release(ctx, of.key, ask.Token)
		return cacheguard.LeaseAnswer{
			State: cacheguard.LeaseHeld, Remaining: min(s.opts.Patience, ask.TTL),
		}
	case hurried && within.Err() != nil: // too little time was left for the locker
		return granted
	default:
		s.trouble(err)
		return granted
	}
}

// acquire requests a lock and waits at most Patience for it. It waits even if the load's callers
// would not wait for another load, because the previous load may have ended already, and its lock
// is given back in the background. It calls leave when it knows whether the lock is held.
func (s *Store) acquire(ctx context.Context, name string, leave func()) (lock.Lock, error) {
	within, cancel := context.WithTimeout(ctx, s.opts.Patience)
	defer cancel()
	held, err := s.locker.TryLock(within, name)
	leave()
	if !errors.Is(err, lock.ErrHeld) {
		return held, err
	}
	held, err = s.locker.Lock(within, name)
	if err != nil && within.Err() != nil {
		return nil, lock.ErrHeld // TryLock has found that it is held
	}
	return held, err
}

// Fill stores a load's result. It gives the lock back first, because the store accepts or refuses a
// fill by the lease alone.
func (s *Store) Fill(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, frame []byte, ttl time.Duration,
) (cacheguard.FillAnswer, error) {
	s.locks.drop(load{k, g.Token})
	return s.Store.Fill(ctx, k, g, frame, ttl)
}

// FillMany is [Store.Fill] for many keys.
func (s *Store) FillMany(
	ctx context.Context, fills []cacheguard.FillAsk,
) []cacheguard.Reply[cacheguard.FillAnswer] {
	for _, f := range fills {
		s.locks.drop(load{f.Key, f.Grant.Token})
	}
	return s.Store.FillMany(ctx, fills)
}

// Conclude ends a load without a value.
func (s *Store) Conclude(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
	keep, backoff time.Duration,
) error {
	s.locks.drop(load{k, g.Token})
	return s.Store.Conclude(ctx, k, g, o, keep, backoff)
}

// Release ends a load that was given up.
func (s *Store) Release(ctx context.Context, k cacheguard.Key, token cacheguard.ID) error {
	s.locks.drop(load{k, token})
	return s.Store.Release(ctx, k, token)
}

// Claim takes the lease of the key from its running load, if there is one. If that load is in this
// process, Claim also ends its lock. If it is in another process, a message tells that process to
// end the lock.
func (s *Store) Claim(
	ctx context.Context, k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
) (cacheguard.Grant, error) {
	g, err := s.Store.Claim(ctx, k, token, ttl)
	s.locks.changed(k)
	return g, err
}

// Invalidate ends the leases of the running loads of the keys. It also ends the locks of these
// loads if they are in this process, whether or not messages arrive here yet.
func (s *Store) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	err := s.Store.Invalidate(ctx, keys)
	for _, k := range keys {
		s.locks.changed(k)
	}
	return err
}

// MarkStale is like [Store.Invalidate].
func (s *Store) MarkStale(ctx context.Context, keys []cacheguard.Key, at int, mark []byte) error {
	err := s.Store.MarkStale(ctx, keys, at, mark)
	for _, k := range keys {
		s.locks.changed(k)
	}
	return err
}

// Renew renews the lease, and extends the time for which the lock is kept.
func (s *Store) Renew(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
) (cacheguard.Holding, error) {
	sent := time.Now()
	holding, err := s.Store.Renew(ctx, k, g, ttl)
	if err != nil {
		s.locks.keep(load{k, g.Token}, g)
		return holding, err
	}
	return s.locks.renewed(load{k, g.Token}, g, holding, sent.Add(ttl),
		min(s.opts.Patience, ttl/3)/4), nil
}

// RenewMany is [Store.Renew] for many keys.
func (s *Store) RenewMany(
	ctx context.Context, keys []cacheguard.Key, grants []cacheguard.Grant, ttl time.Duration,
) []cacheguard.Reply[cacheguard.Holding] {
	sent := time.Now()
	replies := s.Store.RenewMany(ctx, keys, grants, ttl)
	var all sync.WaitGroup
	for i := range replies {
		r, load := &replies[i], load{keys[i], grants[i].Token}
		if r.Err != nil {
			s.locks.keep(load, grants[i])
			continue
		}
		all.Go(func() {
			r.Answer = s.locks.renewed(load, grants[i], r.Answer, sent.Add(ttl),
				min(s.opts.Patience, ttl/3)/4)
		})
	}
	all.Wait()
	return replies
}
