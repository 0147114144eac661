package cacheguard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// Token is a moment on a store's clock. A read with a token (see [NotOlderThan]) returns no value
// that was loaded before that moment. [Token.String] and [ParseToken] turn a token into text and
// back, for a cookie or a header field. The zero Token demands nothing.
//
// A token is no secret, and a forged token does no harm: a moment in the future is ignored, and any
// other moment costs at most as much as a call of [Cache.Refresh].
type Token struct {
	moment int64 // on the store's clock
	// When Demanded made it, on the clock of this process' flights; 0: it is not from Demanded.
	came uint32
}

// Committed returns a token for all changes that were committed to the origin before the call. In
// any process, a read of the named caches with the token (see [NotOlderThan]) returns no value
// whose load began before the call of Committed. This holds even if the invalidation has not
// arrived yet:
//
//	err = tx.Commit()
//	token, err := cacheguard.Committed(ctx, store, "product", "catalog")
//
// Committed asks the store for its clock, in one trip per cache. If the store does not answer,
// Committed returns the error, together with a token that is 250 ms ahead of this process' estimate
// of the clock. This token is reliable if the process has reached the store at least once.
func Committed(ctx context.Context, store Store, caches ...string) (t Token, err error) {
	if ctx == nil {
		return t, errNoContext
	}
	if isNil(store) {
		return t, errNilStore
	}
	if len(caches) == 0 {
		return t, errors.New("cacheguard: Committed needs the name of at least one cache")
	}
	for _, cache := range caches {
		said, failed := store.Clock(ctx, cache)
		if failed != nil {
			err = errors.Join(err,
				fmt.Errorf("cacheguard: the token is an estimate, because the store's clock can't be read: %w",
					failed))
			said = store.Now().Add(protocol.ClockSlack).UnixMicro()
		}
		t.moment = max(t.moment, said)
	}
	return t, err
}

// NotOlderThan returns a context for reads. A read with this context returns no value that was
// loaded before the token was made. If a load begins with the context, the rule also applies to
// reads inside the load. If a context has several tokens, only the two latest moments are kept. The
// later one counts, unless it is in the future; then the other one counts.
//
// If the stored value may be older, the read waits for a refresh: one load for all calls of the
// fleet that need a newer value at the same time. If the load fails, the read returns the load's
// error, and never an older value. Calls without a token still get the stored value. While the
// back-off after an earlier failure lasts, the read gets the earlier error, as with
// [Cache.Refresh]. [Cache.Peek] finds no older value. [Cache.Local] takes no context: check its
// result with [Result.NotOlderThan].
//
// A value that Set or Update stored before the token was made counts as older, which costs one
// unneeded load. A value that Set stores after the token was made counts as newer, even if the
// program made the value earlier. So if a key has several writers, use Update or Invalidate.
//
// This guarantee has three conditions. First, the store's clock must not jump: if a replica
// replaces its master, the replica's clock may be behind by the duration of the failover at most.
// Second, a load that was begun without a token must not return NotModified if its validator is too
// coarse to see the change. Third, a load that was begun without the token may have read older
// values from other caches. So if a load reads other caches, begin it with the token, or invalidate
// its value together with the values that it is made of.
func NotOlderThan(ctx context.Context, t Token) context.Context {
	had := after(ctx)
	has := had.and(t.moment)
	if has == had {
		return ctx
	}
	return context.WithValue(ctx, chainKey{}, &link{parent: chainOf(ctx), demand: true, after: has})
}

// demands are the two latest moments of a context's tokens, or 0. The second one counts if the
// latest one is in the future: a client may have sent that one, and it must not void a token of the
// program.
type demands struct{ latest, second int64 }

// and adds the moment of a token.
func (d demands) and(moment int64) demands {
	switch {
	case moment > d.latest:
		return demands{moment, d.latest}
	case moment < d.latest && moment > d.second:
		d.second = moment
	}
	return d
}

// unforged returns the latest moment that is not too far in the future of this clock. It returns 0
// if there is no such moment. A store's clock can't have returned a moment that is too far ahead.
func (d demands) unforged(clock interface{ Now() time.Time }) int64 {
	if d.latest == 0 {
		return 0 // the first question for the time may cost a trip
	}
	now := clock.Now()
	for _, moment := range []int64{d.latest, d.second} {
		if !protocol.TooFarAhead(moment, now) {
			return moment
		}
	}
	return 0
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
// If the token is from [Cache.Demanded], NotOlderThan also returns true for the result of a load
// without a lease that began in this process after the call of Demanded.
func (r Result[V]) NotOlderThan(t Token) bool {
	return t.moment <= 0 || r.stamp > t.moment ||
		t.came != 0 && r.began != 0 && int32(r.began-t.came) > 0
}

// after returns the moments of the context's tokens. Reads with this context must not return a
// value that was loaded before them.
func after(ctx context.Context) demands {
	if l := linkOf(ctx); l != nil {
		return l.after
	}
	return demands{}
}

// demanded returns the latest moment of the context's tokens that is not in the future, after a
// check against the store's clock. The read must not return a value that was loaded before this
// moment. If there is no such moment, demanded returns 0, and the read may return any value.
func (c *Cache[V]) demanded(ctx context.Context) int64 {
	d := after(ctx)
	if c.opts.Switch.Mode() == ModeOff { // every call loads, so there is nothing to check
		return d.latest
	}
	moment := c.demands.Check(ctx, c.store, c.opts.Name, d.latest)
	if moment == 0 && d.second > 0 {
		moment = c.demands.Check(ctx, c.store, c.opts.Name, d.second)
	}
	return moment
}

// Demanded returns a token with the latest moment that ctx demands by [NotOlderThan] and that is
// not in the future. If there is none, it returns the zero Token. With ModeOff it does not check
// the moment. The token remembers when Demanded was called: see [Result.NotOlderThan].
func (c *Cache[V]) Demanded(ctx context.Context) (t Token) {
	came := flight.Now()
	if t.moment = c.demanded(ctx); t.moment > 0 {
		t.came = uint32(came)
	}
	return t
}

// attempts is how often a read looks at the stored value and takes part in a refresh before it
// loads without the lease. Two loads that began before the read can bring a value that is too old:
// one of another process and one of this process. The load after both is new enough, unless the
// store's clock has been set back or can't be read.
const attempts = 3

// notOlder is the read path of a call whose result must not be older than after.
func (c *Cache[V]) notOlder(
	ctx context.Context, key string, call *call[V], after int64, res *Result[V],
) (err error) {
	came := flight.Now()
	for range attempts {
		for _, group := range []group{reads, reads, refreshes} {
			if group < call.group ||
				group == reads && res.Status != StatusMiss && res.Status != StatusCoalesced {
				// The stored value is too old; the call looks again only if it waited for a load,
				// because another load may have followed.
				continue
			}
			if err = c.plainly(ctx, key, group, call, res); res.meets(err, after, came) {
				return err
			}
		}
		*res = Result[V]{}
	}
	return c.besideLease(ctx, key, call.load, res)
}

// besideLease loads without the lease. All calls that come before this load begins share it,
// because its result is new enough for them.
func (c *Cache[V]) besideLease(
	ctx context.Context, key string, load loader[V], res *Result[V],
) (err error) {
	call := call[V]{group: direct, demands: true, load: load, came: flight.Now()}
	for err = c.begin(ctx, key, &call, res); call.flight != nil; err = c.end(ctx, key, &call, res) {
		call.flight.Await(ctx.Done())
	}
	return err
}

// meets reports whether this result answers a call that began at came, and that accepts no result
// older than after. An error is an answer, too.
func (r *Result[V]) meets(err error, after int64, came uint64) bool {
	return err != nil && !r.NotFound || r.NotOlderThan(Token{moment: after, came: uint32(came)})
}

// plainly makes a call without the demand, so that it can share flights with calls that have no
// token.
func (c *Cache[V]) plainly(
	ctx context.Context, key string, group group, of *call[V], res *Result[V],
) (err error) {
	*res = Result[V]{}
	call := call[V]{group: group, demands: true, load: of.load}
	for err = c.begin(ctx, key, &call, res); call.flight != nil; err = c.end(ctx, key, &call, res) {
		call.flight.Await(ctx.Done())
	}
	return err
}
