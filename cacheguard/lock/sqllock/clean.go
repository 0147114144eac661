package sqllock

import (
	"context"
	"log/slog"
	"time"

	"github.com/cacheguard/cacheguard/internal/report"
)

const (
	// retention is how long the row of a name is kept that nobody locks, for its token: a new row
	// begins with the database's clock, which may have been set back by less.
	retention = time.Hour

	cleanEvery   = time.Minute
	cleanBatches = 100 // at a time, of as many rows as clean.sql says
)

var uncleanLine = report.Line{Level: slog.LevelWarn, Text: "sqllock: rows of old locks are not removed",
	Means: "the table grows", See: "locks-cant-be-had"}

// cleanSometimes removes old rows in the background, so that a table doesn't grow for ever whose
// names are of orders or requests. It is called after a release. One process does it each minute:
// the one that has the lock of the empty name, which no user can have, and which ends by itself.
func (l *Locker) cleanSometimes() {
	now, last := int64(time.Since(l.born)), l.cleaned.Load()
	if now-last < int64(cleanEvery) || !l.cleaned.CompareAndSwap(last, now) {
		return
	}
	l.keeper.Go(func() {
		if err := l.clean(context.Background(), retention); err != nil {
			uncleanLine.Log(context.Background(), l.opts.Logger, "table", l.opts.Table, "error", err)
		}
	})
}

// clean removes the rows that nobody has locked for as long.
func (l *Locker) clean(ctx context.Context, as time.Duration) error {
	c := l.claim("")
	c.row = []byte{}
	if a, err := c.askFor(ctx, cleanEvery); err != nil || !a.mine {
		return err
	}
	for range cleanBatches {
		removed, err := call(ctx, l, nil, func(ctx context.Context, _ error) (int64, error) {
			return l.exec(ctx, l.sql.clean, int64(as/l.sql.unit))
		})
		if removed == 0 || err != nil {
			return err
		}
		select {
		case <-l.keeper.Closed():
			return nil
		default:
		}
	}
	return nil
}
