package redislock

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/option"
)

// Options configures a [Locker]. The zero value of a field means its default.
type Options struct {
	// Prefix is the start of every key and channel name. Default "cglock". It must not contain
	// braces. Lockers with different prefixes share nothing.
	Prefix string

	// Lease is the time that a lock lasts after its holder died or was cut off from Redis. A held
	// lock is renewed every third of Lease. A waiting call that died keeps its place in the queue
	// for one Lease, too. Default 10 s; at least 10 ms. Fractions of a millisecond are cut off. All
	// lockers of one prefix should have the same Lease.
	Lease time.Duration

	// MaxHold is the longest time that a lock may be held. It exists so that a holder that hangs
	// can't keep the lock for ever. After MaxHold the Lost channel of the lock is closed. In Redis
	// the lock ends at most one Lease later, or when it is unlocked. Default 1 h. Negative means no
	// limit.
	MaxHold time.Duration

	// Fair always gives the lock to the call that has waited longest, even if a new call asks at
	// the moment when the lock is free. Without Fair, Unlock also gives the lock to the longest
	// waiting call. But in a cluster, and when a lock expires because its holder died, a new call
	// may get the lock first. Without Fair, a process that died while it waited causes no delay on
	// a single server. In a cluster it delays the others by up to about a third of Lease. With
	// Fair, a process that died while it waited delays the others by up to one Lease. A process
	// that is stopped while it waits delays them by up to one Lease, with or without Fair. All
	// lockers of one prefix should have the same setting.
	Fair bool

	// OpTimeout limits every step in Redis. This includes the wait for a connection, and a second
	// try if Redis hasn't replied within half of OpTimeout. Default 1 s, or a third of Lease if
	// that is less; at least 2 ms, at most Lease.
	OpTimeout time.Duration

	// Logger gets a line when messages stop arriving, and a line when they arrive again. Default
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

// withDefaults returns the options with their defaults set, or an error that names all invalid
// options.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("redislock: Options.Prefix %q has a brace", o.Prefix))
	}
	errs = append(errs,
		option.Duration("redislock: Options.Lease", &o.Lease, defaultLease, leastLease))
	// The server counts in ms: with a fraction of a ms more, a holder would count on its lock for
	// longer than the server keeps it.
	o.Lease = o.Lease.Truncate(time.Millisecond)
	switch {
	case o.MaxHold == 0:
		o.MaxHold = defaultMaxHold
	case o.MaxHold < 0:
		o.MaxHold = 0 // no limit
	}
	errs = append(errs,
		option.Duration("redislock: Options.OpTimeout", &o.OpTimeout,
			max(min(defaultOpTimeout, o.Lease/3), leastOpTimeout), leastOpTimeout))
	if o.OpTimeout > o.Lease && o.Lease >= leastLease {
		errs = append(errs,
			fmt.Errorf("redislock: Options.OpTimeout is %v, more than the Lease of %v", o.OpTimeout,
				o.Lease))
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errors.Join(errs...)
}
