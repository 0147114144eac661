package zklock

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"
)

// Options configures a Locker. The zero value of a field means its default.
type Options struct {
	// Prefix is the path of the node below which each name has one. It is made when it isn't there.
	// Default "/cacheguard/locks". Lockers of different prefixes share nothing, unless one prefix
	// is below another.
	Prefix string

	// Lease is for how long a session lives on when ZooKeeper doesn't hear of it: the session
	// timeout that zk.Connect was given, or less. A lock that can't be verified is Lost before that
	// time is over; what is verified is asked at a quarter of it. More than the servers really
	// grant would have it be Lost too late, and they grant no more than their maxSessionTimeout,
	// which is 40 s unless it is configured.
	//
	// Default 4 s, which is right for whatever zk.Connect was given: servers grant no less than two
	// of their ticks, and a tick is 2 s unless it is configured. With a longer session say it here,
	// or a lock doesn't survive breaks that the session does. At least 100 ms. Two answers of
	// ZooKeeper have to take less than an eighth of it, or there is no lock.
	Lease time.Duration

	// MaxHold is how long a lock may be held, so that a holder that hangs can't keep it for ever:
	// after that it is Lost, and it is taken away one Lease later, or when it is unlocked. Default
	// 1 h; negative: no limit.
	MaxHold time.Duration

	// OpTimeout bounds every step in ZooKeeper, including the time in which a broken connection
	// comes back or a leader is elected. Default 2 s, or half of Lease if that is less; at least 10
	// ms, at most Lease.
	OpTimeout time.Duration

	// ACL is that of every node that is made. Lockers of one prefix need all rights on them.
	// Default: the whole world has all rights, so whoever can reach ZooKeeper can take a lock away.
	ACL []zk.ACL

	// Logger gets a line when a node can't be removed, and when a session ends sooner than Lease
	// says. Default slog.Default().
	Logger *slog.Logger
}

const (
	defaultPrefix    = "/cacheguard/locks"
	defaultLease     = 4 * time.Second
	defaultMaxHold   = time.Hour
	defaultOpTimeout = 2 * time.Second

	leastLease     = 100 * time.Millisecond
	leastOpTimeout = 10 * time.Millisecond
)

// withDefaults returns the options as they count, or all that is wrong with them.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if err := checkPath(o.Prefix); err != nil {
		errs = append(errs, fmt.Errorf("zklock: Options.Prefix %q: %w", o.Prefix, err))
	}
	switch {
	case o.Lease == 0:
		o.Lease = defaultLease
	case o.Lease < leastLease:
		errs = append(errs, fmt.Errorf("zklock: Options.Lease is %v, below the least of %v", o.Lease, leastLease))
	}
	switch {
	case o.MaxHold == 0:
		o.MaxHold = defaultMaxHold
	case o.MaxHold < 0:
		o.MaxHold = 0 // no cap
	}
	switch {
	case o.OpTimeout == 0:
		o.OpTimeout = max(min(defaultOpTimeout, o.Lease/2), leastOpTimeout)
	case o.OpTimeout < leastOpTimeout:
		errs = append(errs, fmt.Errorf("zklock: Options.OpTimeout is %v, below the least of %v", o.OpTimeout, leastOpTimeout))
	case o.OpTimeout > o.Lease && o.Lease >= leastLease:
		errs = append(errs, fmt.Errorf("zklock: Options.OpTimeout is %v, more than the Lease of %v", o.OpTimeout, o.Lease))
	}
	if len(o.ACL) == 0 {
		o.ACL = zk.WorldACL(zk.PermAll)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errors.Join(errs...)
}

// checkPath returns what is wrong with the path of a node. The root is wrong, too: ZooKeeper's own
// nodes are there.
func checkPath(path string) error {
	if !strings.HasPrefix(path, "/") {
		return errors.New("a path begins with a slash")
	}
	if !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl) {
		return errors.New("a path is UTF-8 without control characters")
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		switch part {
		case "", ".", "..":
			return fmt.Errorf("%q is no name of a node", part)
		}
	}
	return nil
}
