package stage

import (
	"context"
	"sync"
)

// local has a lock in the process. The first request of a replica loads, and the replica's other
// requests find the value when they look once more under the lock.
//
// Its flaw: each replica has its own lock, so each replica loads.
type local struct {
	drops
	mu sync.Mutex
}

func (l *local) Get(ctx context.Context, key string) (string, error) {
	value, found, err := l.look(ctx, key)
	if err != nil || found {
		return value, err
	}
	if err := l.At(ctx, Try); err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.At(ctx, Acquired); err != nil {
		return "", err
	}
	if value, found, err := l.look(ctx, key); err != nil || found {
		return value, err
	}
	return l.fetchAndFill(ctx, key)
}
