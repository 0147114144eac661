package sqllock

import (
	"context"
	"time"
)

// Waiting returns the number of calls in the line of a name.
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

// SleepDeep sets the time for which waiting calls that expect a notification send no requests by
// themselves. Call SleepDeep before the first Lock.
func (l *Locker) SleepDeep(d time.Duration) { l.drowsy = d }

// SleepFirst sets the first pause of waiting calls, which Poll limits. Call SleepFirst before the
// first Lock.
func (l *Locker) SleepFirst(d time.Duration) { l.firstSleep = d }

// Clean removes the rows of names that nobody has locked for the given time. In the minute after it
// the locker removes no rows in the background.
func (l *Locker) Clean(ctx context.Context, after time.Duration) error {
	l.cleaned.Store(int64(time.Since(l.born)))
	return l.clean(ctx, after)
}
