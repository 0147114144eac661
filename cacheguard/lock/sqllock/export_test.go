package sqllock

import (
	"context"
	"time"
)

// Waiting is how many stand in the line of a name.
func (l *Locker) Waiting(name string) int {
	l.waiting.mu.Lock()
	defer l.waiting.mu.Unlock()
	if ln := l.waiting.byName[l.opts.Prefix+name]; ln != nil {
		return ln.places.Len()
	}
	return 0
}

// Hears reports whether notifications arrive.
func (l *Locker) Hears() bool { return l.ear.standing.Load() }

// SleepDeep has waiters that count on a notification not look by themselves for so long. It is
// called before the first Lock.
func (l *Locker) SleepDeep(d time.Duration) { l.drowsy = d }

// Clean removes rows that nobody has locked for a time.
func (l *Locker) Clean(ctx context.Context, after time.Duration) error {
	return l.clean(ctx, after)
}
