// Package demand judges what a caller demands of the age of what it reads: a moment on the store's clock, which may have come from
// anybody.
package demand

import (
	"context"
	"time"
)

const (
	// Slack is how far processes' estimates of the store's clock may be apart.
	Slack = 250 * time.Millisecond

	// ahead is how far a store's clock may be behind what it has said before: see cacheguard.Store.
	ahead = 24*time.Hour + time.Second
)

// Clock is a store's.
type Clock interface {
	Now() time.Time                                         // an estimate
	Clock(ctx context.Context, cache string) (int64, error) // what it says, in microseconds since 1970
}

// Check returns the moment, or 0 if nothing can be demanded by it: the store has not said so yet. A moment that is later than the
// estimate costs a question to the store, for the clock may have been set back. While the store can't answer, the moment counts.
func Check(ctx context.Context, store Clock, cache string, moment int64) int64 {
	if moment <= 0 {
		return 0
	}
	switch now := store.Now(); {
	case moment <= now.Add(Slack).UnixMicro():
		return moment
	case moment > now.Add(ahead).UnixMicro():
		return 0
	}
	if said, err := store.Clock(ctx, cache); err == nil && moment > said {
		return 0
	}
	return moment
}
