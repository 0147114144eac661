package cacheguard

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cacheguard/cacheguard/internal/demand"
	"github.com/cacheguard/cacheguard/internal/flight"
)

// Token is a moment on a store's clock, by which a read can demand something that is not older. It
// is text in a cookie or a field of a request: see String and ParseToken. The zero Token demands
// nothing.
//
// A token is no secret, and nobody has to be kept from making one up: a moment that has not come
// yet is ignored, and any other one costs at most what a call of Refresh costs.
type Token struct {
	moment int64  // on the store's clock
	came   uint32 // when Demanded was asked for it, on the clock of this process' flights; 0: it is not from there
}

// Committed returns a token for everything that was committed to the origin before it was called. A
// read with the token (NotOlderThan), in any process, doesn't return a value of these caches, by
// name, whose load had begun by then, whether or not the invalidation has arrived:
//
//	err = tx.Commit()
//	token, err := cacheguard.Committed(ctx, store, "product", "catalog")
//
// It asks the store for its clock, in one trip for each cache. If the store has no answer,
// Committed returns the error, and beside it a token by what this process knows of that clock and
// 250 ms more: good enough unless the process has not reached the store yet.
func Committed(ctx context.Context, store Store, caches ...string) (t Token, err error) {
	if isNil(store) {
		return t, errNilStore
	}
	if len(caches) == 0 {
		return t, errors.New("cacheguard: Committed needs the name of at least one cache")
	}
	for _, cache := range caches {
		said, failed := store.Clock(ctx, cache)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("cacheguard: the token is an estimate, for the store's clock can't be read: %w", failed))
			said = store.Now().Add(demand.Slack).UnixMicro()
		}
		t.moment = max(t.moment, said)
	}
	return t, err
}

// NotOlderThan returns a context with which reads return nothing that was loaded before the token
// was made, also those inside a load that is begun with it. The later of several tokens counts.
//
// If what is at hand may be older, the read takes part in a refresh: one load for all who demand so
// at the same time, in the whole fleet, while others go on being answered as ever. The read then
// waits for that load, and gets its error if it fails, or as with Refresh that of one that has
// failed before, while its back-off lasts: an older value is not served in its place. Peek finds
// nothing instead, and Local knows no context: see Result.NotOlderThan. Observers are told of both,
// what was too old and what came in its place. A value that was stored by Set or Update before the
// token was made counts as older: it costs one load more than is needed. A Set that comes after the
// token counts as later, whenever its value was made: as Set says, with several writers of a key
// use Update or Invalidate.
//
// What is promised needs a clock of the store that doesn't jump: a replica that takes its master's
// place must not be further behind it than a failover takes. The token says when a load began and
// not what it read: where one of which nothing was demanded has said NotModified, by a validator
// that is too coarse for the change, the older value counts as new. A load that was begun without
// the token may have made its value of older ones, from other caches: give the token to those who
// begin loads, or invalidate what is made of others along with them.
func NotOlderThan(ctx context.Context, t Token) context.Context {
	if t.moment <= after(ctx) {
		return ctx
	}
	return context.WithValue(ctx, chainKey{}, &link{parent: chainOf(ctx), demand: true, after: t.moment})
}

// String is the token as text of letters and digits, at most 11 of them; "" for the zero Token.
func (t Token) String() string {
	if t.moment <= 0 {
		return ""
	}
	return strconv.FormatInt(t.moment, 36)
}

// ParseToken makes a token of its text. The text "" is the zero Token.
func ParseToken(text string) (Token, error) {
	if text == "" {
		return Token{}, nil
	}
	n, err := strconv.ParseUint(text, 36, 53)
	if err != nil || n == 0 {
		return Token{}, fmt.Errorf("cacheguard: %.20q is no token", text)
	}
	return Token{moment: int64(n)}, nil
}

// NotOlderThan reports whether the result's load is known to have begun after the token was made.
// With a token of Demanded it is known of loads of this process that have begun since then, also of
// those without a lease.
func (r Result[V]) NotOlderThan(t Token) bool {
	return t.moment <= 0 || r.stamp > t.moment || t.came != 0 && r.began != 0 && int32(r.began-t.came) > 0
}

// after is what is demanded of reads with this context.
func after(ctx context.Context) int64 {
	if l := linkOf(ctx); l != nil {
		return l.after
	}
	return 0
}

// demanded is what is to be demanded of a read with this context; 0: nothing.
func (c *Cache[V]) demanded(ctx context.Context) int64 {
	d := after(ctx)
	if d > 0 && c.opts.Switch.Mode() != ModeOff { // else everything is loaded anew
		return c.demands.Check(ctx, c.store, c.opts.Name, d)
	}
	return d
}

// Demanded is the token that reads with this context go by: that of NotOlderThan, or the zero Token
// if it is from a moment that has not come yet. It remembers when it was asked for: see
// Result.NotOlderThan.
func (c *Cache[V]) Demanded(ctx context.Context) (t Token) {
	came := flight.Now()
	if t.moment = c.demanded(ctx); t.moment > 0 {
		t.came = uint32(came)
	}
	return t
}

// attempts is how often a read looks at what there is and takes part in a refresh until it loads
// alone. A load of another process that was under way when the read came, and one of this process
// that it came too late for, can bring what is too old; what comes after both is new enough, unless
// the store's clock has been set back or can't be read.
const attempts = 3

// notOlder is the read path of a call that demands something not older than that.
func (c *Cache[V]) notOlder(ctx context.Context, key string, call *call[V], after int64, res *Result[V]) (err error) {
	came := flight.Now()
	for range attempts {
		for _, group := range []group{reads, reads, refreshes} {
			if group < call.group || group == reads && res.Status != StatusMiss && res.Status != StatusCoalesced {
				continue // what is there has been looked at; a load that was waited for may have been followed by another one
			}
			if err = c.plainly(ctx, key, group, call, res); res.meets(err, after, came) {
				return err
			}
		}
		*res = Result[V]{}
	}
	return c.besideLease(ctx, key, call.load, res)
}

// besideLease loads without the lease, for all who come until the load begins: what it brings is
// new enough for each of them.
func (c *Cache[V]) besideLease(ctx context.Context, key string, load loader[V], res *Result[V]) (err error) {
	call := call[V]{group: direct, demands: true, load: load, came: flight.Now()}
	for err = c.begin(ctx, key, &call, res); call.flight != nil; err = c.end(ctx, key, &call, res) {
		call.flight.Await(ctx.Done())
	}
	return err
}

// meets reports whether this is an answer for a call that came then and demands something not
// older.
func (r *Result[V]) meets(err error, after int64, came uint64) bool {
	return err != nil && !r.NotFound || r.NotOlderThan(Token{moment: after, came: uint32(came)})
}

// plainly is a call of which nothing is demanded.
func (c *Cache[V]) plainly(ctx context.Context, key string, group group, of *call[V], res *Result[V]) (err error) {
	*res = Result[V]{}
	call := call[V]{group: group, demands: true, load: of.load}
	for err = c.begin(ctx, key, &call, res); call.flight != nil; err = c.end(ctx, key, &call, res) {
		call.flight.Await(ctx.Done())
	}
	return err
}
