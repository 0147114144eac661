package redlock

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/option"
)

// Options configures a [Locker]. The zero value of a field means its default. All lockers of one
// prefix should have the same options and must have the same masters.
type Options struct {
	// Prefix is the start of every key name and of the channel name. Default "cgredlock". It must
	// not contain a colon. Lockers with different prefixes share nothing.
	Prefix string

	// Lease is the time that a lock lasts after its holder died or was cut off from the masters. A
	// held lock is renewed every third of Lease. Default 10 s; at least 10 ms.
	Lease time.Duration

	// MaxHold is the longest time that a lock may be held. It exists so that a holder that hangs
	// can't keep the lock for ever. After MaxHold the Lost channel of the lock is closed. On the
	// masters the lock ends at most one Lease later, or when it is unlocked. Default 1 h. Negative
	// means no limit.
	MaxHold time.Duration

	// NodeTimeout limits each request to a master, including the wait for a connection. (Other
	// lockers call this option OpTimeout.) The requests to all masters are sent at the same time,
	// so NodeTimeout also limits each try of an acquisition, each renewal and each release. A
	// master that takes longer is treated as down. Default 50 ms, or a tenth of Lease if that is
	// less; at least 1 ms, and at most a tenth of Lease, so that waiting for masters doesn't use up
	// the lease.
	NodeTimeout time.Duration

	// Drift is the largest difference between the speeds of this process' clock and of a master's
	// clock, as a share of Lease. A lock is valid for Lease less this share, less 2 ms for Redis'
	// rounding. Default 0.01; at most 0.5.
	Drift float64

	// Logger gets a line when a master stops responding or its messages stop arriving, and another
	// line when the master responds or its messages arrive again. Default slog.Default().
	Logger *slog.Logger
}

const (
	defaultPrefix      = "cgredlock"
	defaultLease       = 10 * time.Second
	defaultMaxHold     = time.Hour
	defaultNodeTimeout = 50 * time.Millisecond
	defaultDrift       = 0.01

	leastLease       = 10 * time.Millisecond
	leastNodeTimeout = time.Millisecond
	mostDrift        = 0.5

	shareOfNodes = 10 // NodeTimeout is at most Lease divided by this number

	// roundingDrift is from the specification of Redlock: Redis counts in milliseconds, and a lease
	// may start anywhere within a millisecond of Redis' clock and of this process' clock.
	roundingDrift = 2 * time.Millisecond
)

// withDefaults returns the options with their defaults set, and the errors of all invalid options.
func (o Options) withDefaults() (Options, []error) {
	var errs []error
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	// Prefix "shop:eu" with name "user" would be the same key as "shop" with "eu:user".
	if strings.Contains(o.Prefix, ":") {
		errs = append(errs, fmt.Errorf("redlock: Options.Prefix %q has a colon", o.Prefix))
	}
	errs = append(errs,
		option.Duration("redlock: Options.Lease", &o.Lease, defaultLease, leastLease))
	switch {
	case o.MaxHold == 0:
		o.MaxHold = defaultMaxHold
	case o.MaxHold < 0:
		o.MaxHold = 0 // no limit
	}
	errs = append(errs,
		option.Duration("redlock: Options.NodeTimeout", &o.NodeTimeout,
			min(defaultNodeTimeout, o.Lease/shareOfNodes), leastNodeTimeout))
	if o.NodeTimeout > o.Lease/shareOfNodes && o.Lease >= leastLease {
		errs = append(errs,
			fmt.Errorf("redlock: Options.NodeTimeout is %v, more than a tenth of the Lease of %v",
				o.NodeTimeout, o.Lease))
	}
	switch {
	case o.Drift == 0:
		o.Drift = defaultDrift
	case !(o.Drift > 0 && o.Drift <= mostDrift): // also true for NaN
		errs = append(errs,
			fmt.Errorf("redlock: Options.Drift is %v; it is a share, above 0 and at most %v",
				o.Drift, mostDrift))
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errs
}

const (
	leastMasters = 3   // the smallest number at which one master can be away
	mostMasters  = 256 // a token has two hexadecimal digits for the master
)

// checkMasters returns the errors of a set of masters.
func checkMasters(masters []redis.UniversalClient) (errs []error) {
	if len(masters) < leastMasters {
		errs = append(errs,
			fmt.Errorf("redlock: there are %d masters; with fewer than %d none of them may fail, so a lock on one server is the better one",
				len(masters), leastMasters))
	}
	if len(masters) > mostMasters {
		errs = append(errs,
			fmt.Errorf("redlock: there are %d masters, more than %d", len(masters), mostMasters))
	}
	known := make(map[any]int) // by client, and by address
	for i, m := range masters {
		address, err := checkMaster(m)
		if err != nil {
			errs = append(errs, fmt.Errorf("redlock: master %d: %w", i, err))
			continue
		}
		for _, same := range []any{m, address} {
			if !reflect.ValueOf(same).Comparable() || same == "" {
				continue
			}
			if first, twice := known[same]; twice {
				errs = append(errs,
					fmt.Errorf("redlock: masters %d and %d are the same: a server that is counted twice is no majority",
						first, i))
				break
			}
			known[same] = i
		}
	}
	return errs
}

// checkMaster returns the error of the client of one master, and the master's address if it is
// known.
func checkMaster(m redis.UniversalClient) (address string, err error) {
	switch c := m.(type) {
	case nil:
		return "", errNil
	case *redis.Client:
		switch {
		case c == nil:
			return "", errNil
		case c.Options().Addr == "FailoverClient": // go-redis' name for a client of sentinels
			return "", errSentinel
		}
		return c.Options().Network + " " + c.Options().Addr, nil
	case *redis.ClusterClient:
		return "", errCluster
	case *redis.Ring:
		return "", errRing
	}
	return "", nil // a client type of the user's own
}

var (
	errNil     = errors.New("the client is nil")
	errCluster = errors.New("a cluster is not a master: give a client of a single server")
	errRing    = errors.New(
		"a Ring is not a master: it gives names to other servers while one is down")
	errSentinel = errors.New(
		"a client of sentinels moves to a replica that may not know of the last locks, at once, which is what a master that was restarted must not do: give a client of a single server")
)
