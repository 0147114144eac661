package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/internal/report"
)

// row is an invalidation that waits for delivery.
type row struct {
	id    int64
	kind  kind
	cache string
	name  string
}

// read reads the oldest rows, batch at most, and returns those that can be delivered. Rows that can
// never be delivered are kept and reported. more is true if the table may have more rows.
func (b *Box) read(ctx context.Context) (rows []row, more bool, err error) {
	found, err := b.db.QueryContext(ctx, b.sql.read, batch)
	if err != nil {
		return nil, false, b.explained(err)
	}
	refused := make(map[int64]error)
	for found.Next() {
		var r row
		if err := found.Scan(&r.id, &r.kind, &r.cache, &r.name); err != nil {
			return nil, false, errors.Join(err, found.Close())
		}
		if wrong := r.decode(); wrong != nil {
			refused[r.id] = wrong
			continue
		}
		rows = append(rows, r)
	}
	if err := errors.Join(found.Err(), found.Close()); err != nil {
		return nil, false, err
	}
	for id, why := range refused {
		if err := b.refuse(ctx, id, why); err != nil {
			return nil, false, err
		}
	}
	return rows, len(rows)+len(refused) >= batch, nil
}

// decode replaces the texts of the names by the names. If the row can never be delivered, it
// returns the reason.
func (r *row) decode() (err error) {
	if r.cache, err = nameOf(r.cache); err != nil {
		return err
	}
	if r.name, err = nameOf(r.name); err != nil {
		return err
	}
	return errors.Join(wrongCache(r.cache), wrong(r.kind, r.name))
}

// refusedLine doesn't contain the error, because the error would name keys. The row has the error.
var refusedLine = report.Line{Level: slog.LevelError,
	Text: "outbox: an invalidation can't be delivered and is kept", See: "the-outbox-cant-deliver",
	Means: "the old value is served until its TTL is over; the column refused of the row says why"}

// refuse marks a row as refused, so that it doesn't block the others.
func (b *Box) refuse(ctx context.Context, id int64, why error) error {
	if _, err := b.db.ExecContext(ctx, b.sql.refuse, id, why.Error()); err != nil {
		return err
	}
	refusedLine.Log(ctx, b.opts.Logger, "table", b.opts.Table, "id", id)
	return nil
}

// remove removes rows that were delivered. It removes them even if ctx has ended, because otherwise
// they would be delivered again.
func (b *Box) remove(ctx context.Context, rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	ids := make([]int64, len(rows))
	for i := range rows {
		ids[i] = rows[i].id
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.opts.Lease)
	defer cancel()
	_, err = b.db.ExecContext(ctx, b.sql.remove, string(list))
	return err
}

// Flush waits until all invalidations committed so far have been delivered, by any process, except
// those that can never be delivered. It returns the error of ctx or of the database.
func (b *Box) Flush(ctx context.Context) error {
	b.Wake()
	var last int64
	if err := b.db.QueryRowContext(ctx, b.sql.last).Scan(&last); err != nil {
		return fmt.Errorf("outbox: %w", b.explained(err))
	}
	for pause := flushPause; ; pause = min(2*pause, mostPause) {
		var pending bool
		if err := b.db.QueryRowContext(ctx, b.sql.pending, last).Scan(&pending); err != nil {
			return fmt.Errorf("outbox: %w", b.explained(err))
		}
		if !pending {
			return nil
		}
		wait(ctx, pause)
	}
}

const flushPause = time.Millisecond

// Backlog says how many invalidations wait for delivery.
type Backlog struct {
	Rows   int64         // number of rows to be delivered
	Oldest time.Duration // age of the oldest of these rows, by the database's clock
	// Number of rows that can never be delivered; see the table's column refused.
	Refused int64
}

// Backlog counts the invalidations that wait for delivery. It reads the whole table, which is small
// unless something is wrong.
func (b *Box) Backlog(ctx context.Context) (Backlog, error) {
	var found Backlog
	var oldest int64
	err := b.db.QueryRowContext(ctx, b.sql.backlog).Scan(&found.Rows, &oldest, &found.Refused)
	if err != nil {
		return Backlog{}, fmt.Errorf("outbox: %w", b.explained(err))
	}
	found.Oldest = max(time.Duration(oldest)*time.Microsecond, 0)
	return found, nil
}

// explained adds a remedy to the error that the table doesn't exist. Other errors stay as they are.
func (b *Box) explained(err error) error {
	var said interface{ SQLState() string }
	missing := strings.Contains(err.Error(), "no such table")
	if errors.As(err, &said) {
		missing = said.SQLState() == "42P01" || said.SQLState() == "3F000"
	}
	if !missing {
		return err
	}
	hint := "make it with Box.Create, or with what Box.Schema says"
	if b.opts.Dialect == sqllock.SQLite {
		hint += "; mind that each connection to :memory: has a database of its own"
	}
	return fmt.Errorf("there is no table %s; %s: %w", b.opts.Table, hint, err)
}
