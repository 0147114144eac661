package redislock

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Options configures a Locker. The zero value of a field means its default.
type Options struct {
	// Prefix begins every key and every channel. Default "cglock"; no braces. Lockers of different
	// prefixes share nothing.
	Prefix string

	// Lease is how long a lock outlives a holder that died or can't be heard of. It is renewed at a
	// third. It also is how long somebody who waited and died counts as waiting. Default 10 s; at
	// least 10 ms. What is less than a millisecond doesn't count. Lockers of one prefix should have
	// the same.
	Lease time.Duration

	// MaxHold is how long a lock may be held, so that a holder that hangs can't keep it for ever:
	// after that it is Lost, and it ends in Redis one Lease later, or when it is unlocked. Default
	// 1 h; negative: no limit.
	MaxHold time.Duration

	// Fair has the lock go to whoever has waited longest, also before somebody who asks just when
	// it is free. Without, a lock that is given back is that one's too, but where it isn't given
	// back, because its holder died, and in a cluster, a newcomer may be quicker. A process that
	// died while it waited costs nothing then; with Fair it costs up to one Lease, as one that
	// stands still does anyway. Lockers of one prefix should agree.
	Fair bool

	// OpTimeout bounds every step in Redis, including the wait for a connection and a second try
	// when no answer came to the first within half of it. Default 1 s, or a third of Lease if that
	// is less; at least 2 ms, at most Lease.
	OpTimeout time.Duration

	// Logger gets a line when messages stop arriving and when they arrive again. Default
	// slog.Default().
	Logger *slog.Logger
}

const (
	defaultPrefix    = "cglock"
	defaultLease     = 10 * time.Second
	defaultMaxHold   = time.Hour
	defaultOpTimeout = time.Second

	leastLease     = 10 * time.Millisecond
	leastOpTimeout = 2 * time.Millisecond
)

// withDefaults returns the options as they count, or all that is wrong with them.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("redislock: Options.Prefix %q has a brace", o.Prefix))
	}
	switch {
	case o.Lease == 0:
		o.Lease = defaultLease
	case o.Lease < leastLease:
		errs = append(errs, fmt.Errorf("redislock: Options.Lease is %v, below the least of %v", o.Lease, leastLease))
	}
	o.Lease = o.Lease.Truncate(time.Millisecond) // as the server counts: a holder that believed in more would not be alone
	switch {
	case o.MaxHold == 0:
		o.MaxHold = defaultMaxHold
	case o.MaxHold < 0:
		o.MaxHold = 0 // no cap
	}
	switch {
	case o.OpTimeout == 0:
		o.OpTimeout = max(min(defaultOpTimeout, o.Lease/3), leastOpTimeout)
	case o.OpTimeout < leastOpTimeout:
		errs = append(errs, fmt.Errorf("redislock: Options.OpTimeout is %v, below the least of %v", o.OpTimeout, leastOpTimeout))
	case o.OpTimeout > o.Lease && o.Lease >= leastLease:
		errs = append(errs, fmt.Errorf("redislock: Options.OpTimeout is %v, more than the Lease of %v", o.OpTimeout, o.Lease))
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errors.Join(errs...)
}
