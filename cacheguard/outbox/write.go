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

// Tx is a transaction of the program: *sql.Tx, or what Pgx makes of one of pgx. With a *sql.DB the
// invalidation is a transaction of its own.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Pgx has a transaction of pgx, or whatever has an Exec like it, be a Tx.
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

// kind says what is to be done, in the words of the table.
type kind string

const (
	ofKey      kind = "key"
	ofStaleKey kind = "stale-key"
	ofTag      kind = "tag"
	ofStaleTag kind = "stale-tag"
	ofAll      kind = "all"
)

// Invalidate is Cache.Invalidate for the cache of that name, when the transaction is committed. It
// is one statement, whatever the number of keys. An error that comes from the database is the
// transaction's, too: roll back.
func (b *Box) Invalidate(ctx context.Context, tx Tx, cache string, keys ...string) error {
	return b.write(ctx, tx, ofKey, cache, keys)
}

// MarkStale is Cache.MarkStale for the cache of that name, when the transaction is committed.
// Otherwise it is like Invalidate.
func (b *Box) MarkStale(ctx context.Context, tx Tx, cache string, keys ...string) error {
	return b.write(ctx, tx, ofStaleKey, cache, keys)
}

// InvalidateTags is Cache.InvalidateTags for the cache of that name, when the transaction is
// committed. Otherwise it is like Invalidate.
func (b *Box) InvalidateTags(ctx context.Context, tx Tx, cache string, tags ...string) error {
	return b.write(ctx, tx, ofTag, cache, tags)
}

// MarkStaleTags is Cache.MarkStaleTags for the cache of that name, when the transaction is
// committed. Otherwise it is like Invalidate.
func (b *Box) MarkStaleTags(ctx context.Context, tx Tx, cache string, tags ...string) error {
	return b.write(ctx, tx, ofStaleTag, cache, tags)
}

// InvalidateAll is Cache.InvalidateAll for the cache of that name, when the transaction is
// committed. Otherwise it is like Invalidate.
func (b *Box) InvalidateAll(ctx context.Context, tx Tx, cache string) error {
	return b.write(ctx, tx, ofAll, cache, []string{""})
}

// write refuses what a relay would have to refuse, as long as somebody is there who can be told.
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

// maxCache is how many bytes the name of a cache has at most.
const maxCache = 128

// wrongCache returns why no cache can have the name, as cacheguard.New does.
func wrongCache(name string) error {
	switch {
	case name == "":
		return errors.New("the name of the cache is empty")
	case len(name) > maxCache:
		return fmt.Errorf("the name of the cache has %d bytes, at most %d are allowed", len(name), maxCache)
	case strings.ContainsAny(name, "{}"):
		return fmt.Errorf("the name of the cache, %q, has a brace", name)
	}
	return nil
}

// wrong returns why nothing of this kind can have the name.
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

// inHex begins the text of a name that can't be one itself.
const inHex = `\x`

// textOf is how a name stands in the table.
func textOf(name string) string {
	if utf8.ValidString(name) && !strings.ContainsRune(name, 0) && !strings.HasPrefix(name, inHex) {
		return name
	}
	return inHex + hex.EncodeToString([]byte(name))
}

// nameOf is what textOf has made a text of.
func nameOf(text string) (string, error) {
	digits, encoded := strings.CutPrefix(text, inHex)
	if !encoded {
		return text, nil
	}
	name, err := hex.DecodeString(digits)
	if err != nil {
		return "", fmt.Errorf("the name %q begins with %s, and is not hexadecimal after it", text, inHex)
	}
	return string(name), nil
}
