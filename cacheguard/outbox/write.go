package outbox

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// Tx is a transaction of the program: a *sql.Tx, or the result of [Pgx] for a transaction of pgx.
// If Tx is a *sql.DB, the invalidation is a transaction of its own.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Pgx makes a [Tx] of a transaction of pgx, or of any other value that has the same Exec method.
func Pgx[Tag any](tx interface {
	Exec(ctx context.Context, query string, args ...any) (Tag, error)
}) Tx {
	return pgxTx(func(ctx context.Context, query string, args ...any) error {
		_, err := tx.Exec(ctx, query, args...)
		return err
	})
}

type pgxTx func(ctx context.Context, query string, args ...any) error

func (exec pgxTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return nil, exec(ctx, query, args...)
}

// kind is the kind of an invalidation, in the words of the table.
type kind string

const (
	ofKey      kind = "key"
	ofStaleKey kind = "stale-key"
	ofTag      kind = "tag"
	ofStaleTag kind = "stale-tag"
	ofAll      kind = "all"
)

// Invalidate writes an invalidation into the transaction. After the commit a relay delivers it,
// with the effect of Cache.Invalidate for the cache with that name. Invalidate is one statement,
// whatever the number of keys. If the error comes from the database, the transaction has failed
// too: roll it back.
func (b *Box) Invalidate(ctx context.Context, tx Tx, cache string, keys ...string) error {
	return b.write(ctx, tx, ofKey, cache, keys)
}

// MarkStale is like [Box.Invalidate], with the effect of Cache.MarkStale.
func (b *Box) MarkStale(ctx context.Context, tx Tx, cache string, keys ...string) error {
	return b.write(ctx, tx, ofStaleKey, cache, keys)
}

// InvalidateTags is like [Box.Invalidate], with the effect of Cache.InvalidateTags.
func (b *Box) InvalidateTags(ctx context.Context, tx Tx, cache string, tags ...string) error {
	return b.write(ctx, tx, ofTag, cache, tags)
}

// MarkStaleTags is like [Box.Invalidate], with the effect of Cache.MarkStaleTags.
func (b *Box) MarkStaleTags(ctx context.Context, tx Tx, cache string, tags ...string) error {
	return b.write(ctx, tx, ofStaleTag, cache, tags)
}

// InvalidateAll is like [Box.Invalidate], with the effect of Cache.InvalidateAll.
func (b *Box) InvalidateAll(ctx context.Context, tx Tx, cache string) error {
	return b.write(ctx, tx, ofAll, cache, []string{""})
}

// write writes the rows. It returns an error for rows that a relay would refuse, because later
// nobody could return that error to the caller.
func (b *Box) write(ctx context.Context, tx Tx, k kind, cache string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	if tx == nil {
		return errors.New("outbox: the transaction is nil")
	}
	if err := wrongCache(cache); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	written := make([]string, len(names))
	for i, name := range names {
		if err := wrong(k, name); err != nil {
			return fmt.Errorf("outbox: %w", err)
		}
		written[i] = textOf(name)
	}
	list, err := json.Marshal(written)
	if err != nil {
		return err
	}
	args := []any{string(k), textOf(cache), string(list)}
	if b.opts.Listen != nil {
		args = append(args, b.opts.Table)
	}
	if _, err := tx.ExecContext(ctx, b.sql.write, args...); err != nil {
		return fmt.Errorf("outbox: %w", b.explained(err))
	}
	return nil
}

// maxCache is the maximum length of a cache's name in bytes.
const maxCache = 128

// wrongCache returns the reason why no cache can have the name, or nil. The rules are those of
// cacheguard.New.
func wrongCache(name string) error {
	switch {
	case name == "":
		return errors.New("the name of the cache is empty")
	case len(name) > maxCache:
		return fmt.Errorf("the name of the cache has %d bytes, at most %d are allowed", len(name),
			maxCache)
	case strings.ContainsAny(name, "{}"):
		return fmt.Errorf("the name of the cache, %q, has a brace", name)
	}
	return nil
}

// wrong returns the reason why no row of this kind can have the name, or nil.
func wrong(k kind, name string) error {
	switch k {
	case ofTag, ofStaleTag:
		if strings.HasPrefix(name, "\x00") {
			return fmt.Errorf("a tag that begins with a zero byte: %q", name)
		}
		_, err := frame.MakeTags([]string{name})
		return err
	case ofKey, ofStaleKey, ofAll:
		return nil
	}
	return fmt.Errorf("the kind %q is none of key, stale-key, tag, stale-tag and all", k)
}

// inHex is the start of the text of a name that can't be stored as it is.
const inHex = `\x`

// textOf returns the text that is stored in the table for a name.
func textOf(name string) string {
	if utf8.ValidString(name) && !strings.ContainsRune(name, 0) && !strings.HasPrefix(name, inHex) {
		return name
	}
	return inHex + hex.EncodeToString([]byte(name))
}

// nameOf returns the name for a text that textOf has made.
func nameOf(text string) (string, error) {
	digits, encoded := strings.CutPrefix(text, inHex)
	if !encoded {
		return text, nil
	}
	name, err := hex.DecodeString(digits)
	if err != nil {
		return "", fmt.Errorf("the name %q begins with %s, and is not hexadecimal after it", text,
			inHex)
	}
	return string(name), nil
}
