package locktest_test

import (
	"context"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// broken is a locker with some of its steps replaced.
type broken struct {
	*reference
	lock func(ctx context.Context, name string) (lock.Lock, error)
	try  func(ctx context.Context, name string) (lock.Lock, error)
	wrap func(held lock.Lock) lock.Lock // what is handed out
	shut func() error                   // Close
}

func (b *broken) Close() error {
	if b.shut != nil {
		return b.shut()
	}
	return b.reference.Close()
}

func (b *broken) Lock(ctx context.Context, name string) (lock.Lock, error) {
	step := b.lock
	if step == nil {
		step = b.reference.Lock
	}
	return b.hand(step(ctx, name))
}

func (b *broken) TryLock(ctx context.Context, name string) (lock.Lock, error) {
	step := b.try
	if step == nil {
		step = b.reference.TryLock
	}
	return b.hand(step(ctx, name))
}

func (b *broken) Continue(ctx context.Context, name string, token int64) (lock.Lock, error) {
	return b.hand(b.reference.Continue(ctx, name, token))
}

func (b *broken) SeizeUnsafely(ctx context.Context, name string) (lock.Lock, error) {
	return b.hand(b.reference.SeizeUnsafely(ctx, name))
}

func (b *broken) hand(held lock.Lock, err error) (lock.Lock, error) {
	if err == nil && b.wrap != nil {
		held = b.wrap(held)
	}
	return held, err
}

// brokenLock is a lock with some of its steps replaced.
type brokenLock struct {
	lock.Lock
	name   func() string
	token  func() int64
	lost   func() <-chan struct{}
	until  func() time.Time
	err    func() error
	unlock func(ctx context.Context) error
	carry  func(ctx context.Context) context.Context
}

func (b *brokenLock) Name() string {
	if b.name != nil {
		return b.name()
	}
	return b.Lock.Name()
}

func (b *brokenLock) Token() int64 {
	if b.token != nil {
		return b.token()
	}
	return b.Lock.Token()
}

func (b *brokenLock) Lost() <-chan struct{} {
	if b.lost != nil {
		return b.lost()
	}
	return b.Lock.Lost()
}

func (b *brokenLock) Err() error {
	if b.err != nil {
		return b.err()
	}
	return b.Lock.Err()
}

func (b *brokenLock) Until() time.Time {
	if b.until != nil {
		return b.until()
	}
	return b.Lock.Until()
}

func (b *brokenLock) Unlock(ctx context.Context) error {
	if b.unlock != nil {
		return b.unlock(ctx)
	}
	return b.Lock.Unlock(ctx)
}

func (b *brokenLock) Carry(ctx context.Context) context.Context {
	if b.carry != nil {
		return b.carry(ctx)
	}
	if c, ok := b.Lock.(interface {
		Carry(context.Context) context.Context
	}); ok {
		return c.Carry(ctx)
	}
	return ctx
}

// brokenSystem is a system with some of its steps replaced.
type brokenSystem struct {
	system
	acquireAs func(ctx context.Context, name, owner string, lease time.Duration) (Answer, error)
	renewAs   func(name, owner string) (bool, error)
	releaseAs func(name, owner string) (bool, error)
	takeAs    func(ctx context.Context, name, owner string, from int64,
		lease time.Duration) (Answer, error)
	waitFor func(ctx context.Context, name string) error
}

func (b *brokenSystem) acquire(
	ctx context.Context, name, owner string, lease time.Duration,
) (Answer, error) {
	if b.acquireAs != nil {
		return b.acquireAs(ctx, name, owner, lease)
	}
	return b.system.acquire(ctx, name, owner, lease)
}

func (b *brokenSystem) renew(
	ctx context.Context, name, owner string, lease time.Duration,
) (bool, error) {
	if b.renewAs != nil {
		return b.renewAs(name, owner)
	}
	return b.system.renew(ctx, name, owner, lease)
}

func (b *brokenSystem) release(ctx context.Context, name, owner string) (bool, error) {
	if b.releaseAs != nil {
		return b.releaseAs(name, owner)
	}
	return b.system.release(ctx, name, owner)
}

func (b *brokenSystem) take(
	ctx context.Context, name, owner string, from int64, lease time.Duration,
) (Answer, error) {
	if b.takeAs != nil {
		return b.takeAs(ctx, name, owner, from, lease)
	}
	return b.system.take(ctx, name, owner, from, lease)
}

func (b *brokenSystem) wait(ctx context.Context, name string) error {
	if b.waitFor != nil {
		return b.waitFor(ctx, name)
	}
	return b.system.wait(ctx, name)
}
