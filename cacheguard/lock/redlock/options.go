package redlock

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options configures a Locker. The zero value of a field means its default. All lockers of a prefix
// should have the same options and must have the same masters.
type Options struct {
	// Prefix begins every key and the channel. Default "cgredlock"; no colon. Lockers of different
	// prefixes share nothing.
	Prefix string

	// Lease is how long a lock outlives a holder that died or can't be heard of. It is renewed at a
	// third. Default 10 s; at least 10 ms.
	Lease time.Duration

	// MaxHold is how long a lock may be held, so that a holder that hangs can't keep it for ever:
	// after that it is Lost, and it ends on the masters one Lease later, or when it is unlocked.
	// Default 1 h; negative: no limit.
	MaxHold time.Duration

	// NodeTimeout bounds each request to a master, including the wait for a connection: it is what
	// OpTimeout is to other lockers. All masters are asked at once, so it is also what an
	// acquisition, a renewal or a release takes at most. A master that takes longer counts as one
	// that is down. Default 50 ms, or a tenth of Lease if that is less; at least 1 ms, and at most
	// a tenth of Lease, so that waiting for masters can't eat the lock.
	NodeTimeout time.Duration

	// Drift is by which share of Lease the clocks of this process and of a master may differ in
	// speed: a lock counts for Lease less this share and 2 ms, which is for Redis' own way to
	// round. Default 0.01; at most 0.5.
	Drift float64

	// Logger gets a line when a master stops answering or messages stop arriving from it, and when
	// that is over. Default slog.Default().
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

	shareOfNodes = 10 // NodeTimeout is at most Lease divided by this

	// roundingDrift is the paper's: Redis counts in milliseconds, and its clock and ours begin one
	// somewhere inside.
	roundingDrift = 2 * time.Millisecond
)

// withDefaults returns the options as they count, and all that is wrong with them.
func (o Options) withDefaults() (Options, []error) {
	var errs []error
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if strings.Contains(o.Prefix, ":") { // "shop:eu" and "user" would be "shop" and "eu:user"
		errs = append(errs, fmt.Errorf("redlock: Options.Prefix %q has a colon", o.Prefix))
	}
	switch {
	case o.Lease == 0:
		o.Lease = defaultLease
	case o.Lease < leastLease:
		errs = append(errs, fmt.Errorf("redlock: Options.Lease is %v, below the least of %v", o.Lease, leastLease))
	}
	switch {
	case o.MaxHold == 0:
		o.MaxHold = defaultMaxHold
	case o.MaxHold < 0:
		o.MaxHold = 0 // no cap
	}
	switch {
	case o.NodeTimeout == 0:
		o.NodeTimeout = min(defaultNodeTimeout, o.Lease/shareOfNodes)
	case o.NodeTimeout < leastNodeTimeout:
		errs = append(errs, fmt.Errorf("redlock: Options.NodeTimeout is %v, below the least of %v", o.NodeTimeout, leastNodeTimeout))
	case o.NodeTimeout > o.Lease/shareOfNodes && o.Lease >= leastLease:
		errs = append(errs, fmt.Errorf("redlock: Options.NodeTimeout is %v, more than a tenth of the Lease of %v", o.NodeTimeout, o.Lease))
	}
	switch {
	case o.Drift == 0:
		o.Drift = defaultDrift
	case !(o.Drift > 0 && o.Drift <= mostDrift): // not a number, too
		errs = append(errs, fmt.Errorf("redlock: Options.Drift is %v; it is a share, above 0 and at most %v", o.Drift, mostDrift))
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errs
}

const (
	leastMasters = 3   // with how many one of them can be away
	mostMasters  = 256 // a token has two digits for them
)

// checkMasters returns all that is wrong with a set of masters.
func checkMasters(masters []redis.UniversalClient) (errs []error) {
	if len(masters) < leastMasters {
		errs = append(errs, fmt.Errorf("redlock: there are %d masters; with fewer than %d none of them may fail, so a lock on one server is the better one", len(masters), leastMasters))
	}
	if len(masters) > mostMasters {
		errs = append(errs, fmt.Errorf("redlock: there are %d masters, more than %d", len(masters), mostMasters))
	}
	known := make(map[any]int) // clients and addresses
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
				errs = append(errs, fmt.Errorf("redlock: masters %d and %d are the same: a server that is counted twice is no majority", first, i))
				break
			}
			known[same] = i
		}
	}
	return errs
}

// checkMaster says what is wrong with the client of one master, and where it is if that can be
// known.
func checkMaster(m redis.UniversalClient) (address string, err error) {
	switch c := m.(type) {
	case nil:
		return "", errNil
	case *redis.Client:
		switch {
		case c == nil:
			return "", errNil
		case c.Options().Addr == "FailoverClient": // so go-redis calls it
			return "", errSentinel
		}
		return c.Options().Network + " " + c.Options().Addr, nil
	case *redis.ClusterClient:
		return "", errCluster
	case *redis.Ring:
		return "", errRing
	}
	return "", nil // of the user's own
}

var (
	errNil      = errors.New("the client is nil")
	errCluster  = errors.New("a cluster is not a master: give a client of a single server")
	errRing     = errors.New("a Ring is not a master: it gives names to other servers while one is down")
	errSentinel = errors.New("a client of sentinels moves to a replica that may not know of the last locks, at once, which is what a master that was restarted must not do: give a client of a single server")
)
