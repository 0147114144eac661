package sqllock

import (
	"context"
	"log/slog"
	"time"

	"github.com/cacheguard/cacheguard/internal/report"
)

const (
	// retention is the time for which the row of a name is kept after its last lock. The row is
	// kept because of its token: the token in a new row is the database's clock, which is larger
	// than the old token unless the clock was set back by more than retention.
	retention = time.Hour

	cleanEvery   = time.Minute
	cleanBatches = 100 // batches of one removal; clean.sql says how many rows a batch has
)

var uncleanLine = report.Line{Level: slog.LevelWarn,
	Text:  "sqllock: rows of old locks are not removed",
	Means: "the table grows", See: "locks-cant-be-had"}

// cleanSometimes removes old rows in the background, so that the table doesn't grow for ever if,
// for example, each order or each request has its own lock. It is called after a release. Each
// minute one process of the fleet removes rows: the process that has the lock of the empty name.
// Users can't have this lock, and it expires by itself.
func (l *Locker) cleanSometimes() {
	now, last := int64(time.Since(l.born)), l.cleaned.Load()
	if now-last < int64(cleanEvery) || !l.cleaned.CompareAndSwap(last, now) {
		return
	}
	l.keeper.Go(func() {
		if err := l.clean(context.Background(), retention); err != nil {
			uncleanLine.Log(context.Background(), l.opts.Logger, "table", l.opts.Table, "error",
				err)
		}
	})
}

// clean removes the rows of names that nobody has locked for the duration as.
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
