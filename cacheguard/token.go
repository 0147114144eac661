package cacheguard

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cacheguard/cacheguard/internal/demand"
	"github.com/cacheguard/cacheguard/internal/flight"
)

// Token is a moment on a store's clock. A read with a token (see [NotOlderThan]) returns nothing
// that was loaded before that moment. [Token.String] and [ParseToken] turn a token into text and
// back, for a cookie or a header field. The zero Token demands nothing.
//
// A token is no secret, and a forged token does no harm: a moment in the future is ignored, and any
// other moment costs at most as much as a call of [Cache.Refresh].
type Token struct {
	moment int64  // on the store's clock
	came   uint32 // when Demanded made it, on the clock of this process' flights; 0: it is not from Demanded
}

// Committed returns a token for everything that was committed to the origin before the call. A read
// with the token (see [NotOlderThan]), in any process, returns no value of the named caches whose
// load began before the call of Committed, even if the invalidation has not arrived yet:
//
//	err = tx.Commit()
//	token, err := cacheguard.Committed(ctx, store, "product", "catalog")
//
// Committed asks the store for its clock, in one trip per cache. If the store does not answer,
// Committed returns the error, together with a token that is 250 ms ahead of this process' estimate
// of the clock. That token is good unless the process has never reached the store.
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

// NotOlderThan returns a context whose reads return nothing that was loaded before the token was
// made. This includes reads inside a load that is begun with the context. If several tokens are
// set, the latest one is used.
//
// If the stored value may be older, the read takes part in a refresh: one load for all calls of the
// fleet that need a newer value at the same time. Calls without a token are answered as before. The
// read waits for the load. If the load fails, the read gets its error, and an older value is not
// served instead. While the back-off after an earlier failure lasts, the read gets the earlier
// error, as with [Cache.Refresh]. [Cache.Peek] finds nothing older. [Cache.Local] takes no context:
// check its result with [Result.NotOlderThan].
//
// A value that Set or Update stored before the token was made counts as older, which costs one
// unneeded load. A value that Set stores after the token was made counts as newer, even if the
// program made the value earlier. So with several writers of a key use Update or Invalidate.
//
// The promise has three conditions. First, the store's clock must not jump: the clock of a replica
// that replaces its master may be behind by the duration of the failover at most. Second, a load
// that was begun without a token must not return NotModified because its validator is too coarse to
// see the change. Third, a load that was begun without the token may have read older values from
// other caches: begin loads that read other caches with the token, or invalidate a value together
// with the values that it is made of.
func NotOlderThan(ctx context.Context, t Token) context.Context {
	if t.moment <= after(ctx) {
		return ctx
	}
	return context.WithValue(ctx, chainKey{}, &link{parent: chainOf(ctx), demand: true, after: t.moment})
}

// String returns the token as text: at most 11 letters and digits, or "" for the zero Token.
func (t Token) String() string {
	if t.moment <= 0 {
		return ""
	}
	return strconv.FormatInt(t.moment, 36)
}

// ParseToken returns the token of a text. The text "" is the zero Token.
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
// For a token from [Cache.Demanded], it also returns true for the result of a load without a lease,
// if the load began in this process after the call of Demanded.
func (r Result[V]) NotOlderThan(t Token) bool {
	return t.moment <= 0 || r.stamp > t.moment || t.came != 0 && r.began != 0 && int32(r.began-t.came) > 0
}

// after is the moment of the context's token: reads with this context must return nothing loaded
// before it.
func after(ctx context.Context) int64 {
	if l := linkOf(ctx); l != nil {
		return l.after
	}
	return 0
}

// demanded is the moment that a read with this context has to respect, after a check of the token
// against the store's clock; 0 means that any value will do.
func (c *Cache[V]) demanded(ctx context.Context) int64 {
	d := after(ctx)
	if d > 0 && c.opts.Switch.Mode() != ModeOff { // while the Switch is off, every call loads, so there is nothing to check
		return c.demands.Check(ctx, c.store, c.opts.Name, d)
	}
	return d
}

// Demanded returns the token of a context made by [NotOlderThan], or the zero Token if the moment
// is in the future. The token remembers when Demanded was called: see [Result.NotOlderThan].
func (c *Cache[V]) Demanded(ctx context.Context) (t Token) {
	came := flight.Now()
	if t.moment = c.demanded(ctx); t.moment > 0 {
		t.came = uint32(came)
	}
	return t
}

// attempts is how often a read looks at the stored value and takes part in a refresh before it
// loads alone. Two loads can bring a value that is too old: one of another process that was under
// way when the read began, and one of this process that began before the read. The load after both
// is new enough, unless the store's clock has been set back or can't be read.
const attempts = 3

// notOlder is the read path of a call whose result must not be older than after.
func (c *Cache[V]) notOlder(ctx context.Context, key string, call *call[V], after int64, res *Result[V]) (err error) {
	came := flight.Now()
	for range attempts {
		for _, group := range []group{reads, reads, refreshes} {
			if group < call.group || group == reads && res.Status != StatusMiss && res.Status != StatusCoalesced {
				continue // the stored value is too old; look again only if the call waited for a load, because another load may have followed
			}
			if err = c.plainly(ctx, key, group, call, res); res.meets(err, after, came) {
				return err
			}
		}
		*res = Result[V]{}
	}
	return c.besideLease(ctx, key, call.load, res)
}

// besideLease loads without the lease, once for all calls that come before the load begins: its
// result is new enough for each of them.
func (c *Cache[V]) besideLease(ctx context.Context, key string, load loader[V], res *Result[V]) (err error) {
	call := call[V]{group: direct, demands: true, load: load, came: flight.Now()}
	for err = c.begin(ctx, key, &call, res); call.flight != nil; err = c.end(ctx, key, &call, res) {
		call.flight.Await(ctx.Done())
	}
	return err
}

// meets reports whether this is an answer for a call that began at came and whose result must not
// be older than after. An error is an answer, too.
func (r *Result[V]) meets(err error, after int64, came uint64) bool {
	return err != nil && !r.NotFound || r.NotOlderThan(Token{moment: after, came: uint32(came)})
}

// plainly makes a call without the demand, so that it can share flights with calls that have no
// token.
func (c *Cache[V]) plainly(ctx context.Context, key string, group group, of *call[V], res *Result[V]) (err error) {
	*res = Result[V]{}
	call := call[V]{group: group, demands: true, load: of.load}
	for err = c.begin(ctx, key, &call, res); call.flight != nil; err = c.end(ctx, key, &call, res) {
		call.flight.Await(ctx.Done())
	}
	return err
}
