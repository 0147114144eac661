package stage

import (
	"context"
	"errors"
)

// ErrHalted is the error of At that ends a replica like a crash: nothing is cleaned up.
var ErrHalted = errors.New("the process has ended here")

// mutex is the interface of the stages' locks. Each mutex is made for one request.
type mutex interface {
	try(ctx context.Context) (mine bool, err error)
	unlock(ctx context.Context) error
}

// queue is a mutex that wakes waiting requests.
type queue interface {
	wait(ctx context.Context) error
	leave(ctx context.Context) error // leaves the line without having had the lock
}

// locked is the common part of all stages with a lock that the replicas share. A request looks into
// the cache, asks for the lock, and waits if another request has the lock. It repeats this until it
// has the value or the lock. Under the lock it looks once more, loads, fills and unlocks.
type locked struct {
	drops
	mutex func(r *Replica, name string) mutex
}

func (l *locked) Get(ctx context.Context, key string) (string, error) {
	lock := l.mutex(l.Replica, lockName(key))
	queue, queued := lock.(queue)
	for {
		value, found, err := l.look(ctx, key)
		if found && queued {
			err = errors.Join(err, queue.leave(context.WithoutCancel(ctx)))
		}
		if err != nil || found {
			return value, err
		}
		if err := l.At(ctx, Try); err != nil {
			return "", err
		}
		mine, err := lock.try(ctx)
		if err != nil {
			return "", err
		}
		if mine {
			return l.under(ctx, lock, key)
		}
		if queued {
			err = queue.wait(ctx)
		} else {
			err = l.spin(ctx)
		}
		if err != nil {
			return "", err
		}
	}
}

// under does the work under the lock. It gives the lock back after every result, even if the client
// has left.
func (l *locked) under(ctx context.Context, lock mutex, key string) (string, error) {
	value, err := l.checkAndLoad(ctx, key)
	if errors.Is(err, ErrHalted) {
		return "", err
	}
	ctx = context.WithoutCancel(ctx)
	unlock := l.At(ctx, Unlock)
	if unlock == nil {
		unlock = lock.unlock(ctx)
	}
	return value, errors.Join(err, unlock)
}

func (l *locked) checkAndLoad(ctx context.Context, key string) (string, error) {
	if err := l.At(ctx, Acquired); err != nil {
		return "", err
	}
	if value, found, err := l.look(ctx, key); err != nil || found {
		return value, err
	}
	return l.fetchAndFill(ctx, key)
}
