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

	"github.com/cacheguard/cacheguard/internal/option"
)

// Options configures a [Locker]. The zero value of a field means its default.
type Options struct {
	// Prefix is the path of the node whose children are the nodes of the names. It is created if it
	// doesn't exist. Default "/cacheguard/locks". Lockers with different prefixes share nothing,
	// unless one prefix is below another.
	Prefix string

	// Lease is the time that a session lasts while ZooKeeper doesn't hear from it. Set it to the
	// session timeout that was passed to zk.Connect, or less. A held lock is verified every quarter
	// of Lease. If it can't be verified, its Lost channel is closed before Lease is over. If Lease
	// is longer than the session timeout that the servers really grant, the channel is closed too
	// late. The servers grant at most their maxSessionTimeout, which is 40 s by default.
	//
	// Default 4 s, which is safe for any timeout passed to zk.Connect if the servers have their
	// defaults: they grant at least two of their ticks, and a tick is 2 s. If your session timeout
	// is longer, set Lease to it. Otherwise a lock may be lost in a break of the connection that
	// the session survives. At least 100 ms. If two replies of ZooKeeper together take an eighth of
	// Lease or more, no lock can be acquired.
	Lease time.Duration

	// MaxHold is the longest time that a lock may be held. It exists so that a holder that hangs
	// can't keep the lock for ever. After MaxHold the Lost channel of the lock is closed. In
	// ZooKeeper the lock ends one Lease later, or when it is unlocked. Default 1 h. Negative means
	// no limit.
	MaxHold time.Duration

	// OpTimeout limits every step in ZooKeeper, including the time until a broken connection is
	// back or a leader is elected. Default 2 s, or half of Lease if that is less; at least 10 ms,
	// at most Lease.
	OpTimeout time.Duration

	// ACL is the access control list of every node that the locker creates. Lockers of one prefix
	// need at least the rights create, delete and read on these nodes. By default everybody has all
	// rights, so every client that can reach ZooKeeper can take a lock away.
	ACL []zk.ACL

	// Logger gets a line when a node can't be removed, and when a session ends before Lease is
	// over. Default slog.Default().
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

// withDefaults returns the options with their defaults set, or an error that names all invalid
// options.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if err := checkPath(o.Prefix); err != nil {
		errs = append(errs, fmt.Errorf("zklock: Options.Prefix %q: %w", o.Prefix, err))
	}
	errs = append(errs,
		option.Duration("zklock: Options.Lease", &o.Lease, defaultLease, leastLease))
	switch {
	case o.MaxHold == 0:
		o.MaxHold = defaultMaxHold
	case o.MaxHold < 0:
		o.MaxHold = 0 // no limit
	}
	errs = append(errs,
		option.Duration("zklock: Options.OpTimeout", &o.OpTimeout,
			max(min(defaultOpTimeout, o.Lease/2), leastOpTimeout), leastOpTimeout))
	if o.OpTimeout > o.Lease && o.Lease >= leastLease {
		errs = append(errs,
			fmt.Errorf("zklock: Options.OpTimeout is %v, more than the Lease of %v", o.OpTimeout,
				o.Lease))
	}
	if len(o.ACL) == 0 {
		o.ACL = zk.WorldACL(zk.PermAll)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errors.Join(errs...)
}

// checkPath returns an error if the path of a node is invalid. The root is not allowed either,
// because it contains ZooKeeper's own nodes.
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
