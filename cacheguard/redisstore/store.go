package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redislink"
)

// Options configures a Store. The zero value of a field means its default.
type Options struct {
	// Prefix begins every key and the channel. Default "cg"; no braces. Stores of different
	// prefixes share nothing.
	Prefix string

	// OpTimeout bounds every step in Redis, including the wait for a connection and a second try
	// when no answer came to the first within half of it. Default 250 ms; at least 2 ms.
	OpTimeout time.Duration

	// Logger gets a line when messages stop arriving, when Redis doesn't answer or takes no writes,
	// and when that is over. Default slog.Default().
	Logger *slog.Logger
}

// Store implements cacheguard.Store on Redis. It is safe for concurrent use. Make one for each
// process and client.
type Store struct {
	link   *redislink.Link
	opts   Options
	name   string // of this process, for the log
	names  names
	reads  reader
	health breakers // of all steps
	writes breakers // of those that write
	clock  clock

	cluster *generationsKnown // nil for a single server, where what they are is read along with a value

	hearing

	scoreless atomic.Bool // that generations can't be read along with values was said
	closed    atomic.Bool
}

var (
	_ cacheguard.Store    = (*Store)(nil)
	_ cacheguard.Breakers = (*Store)(nil)
)

// New makes a store on a client of a single server, of Sentinel, or of a cluster. It reports every
// invalid option at once and never dials. The client stays the caller's: Close doesn't close it.
//
// Give the client ContextTimeoutEnabled. Without it its calls last up to its ReadTimeout whatever
// the context says; the store then goes through a view of a single-server client, which shares its
// connections, and calls a cluster client aside, which costs a goroutine for each read. The
// client's hooks see every command but those of the subscription, of a view if they were added
// before New.
func New(rdb redis.UniversalClient, opts Options) (*Store, error) {
	var errs []error
	if opts.Prefix == "" {
		opts.Prefix = "cg"
	}
	if strings.ContainsAny(opts.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("redisstore: Options.Prefix %q has a brace", opts.Prefix))
	}
	switch {
	case opts.OpTimeout == 0:
		opts.OpTimeout = 250 * time.Millisecond
	case opts.OpTimeout < 2*time.Millisecond:
		errs = append(errs, fmt.Errorf("redisstore: Options.OpTimeout is %v, below the least of 2ms", opts.OpTimeout))
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	link, err := redislink.New(rdb, opts.OpTimeout)
	if err != nil {
		errs = slices.Insert(errs, 0, fmt.Errorf("redisstore: %w", err))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}

	s := &Store{
		link: link, opts: opts, name: uuid.NewString(), names: names{prefix: opts.Prefix},
		hearing: hearing{listeners: make(map[string][]*listener), hears: make(map[string]bool)},
	}
	if link.Direct() == nil { // also for a client of the user's own type, of which nobody knows
		s.cluster = &generationsKnown{}
	} else {
		s.inbox = strings.ReplaceAll(s.name, "-", "")[:inboxDigits]
	}
	s.health.initHealth(s, link.IsCluster())
	s.writes.initWrites(s, link.IsCluster())
	s.reads.init(s)
	s.clock.base = time.Now()
	return s, nil
}

// StepTimeout returns OpTimeout.
func (s *Store) StepTimeout() time.Duration { return s.opts.OpTimeout }

// Close ends the subscription. Calls fail afterwards. Close the caches first. A second Close does
// nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	sub := s.sub
	s.closed.Store(true)
	s.mu.Unlock()
	if sub != nil {
		sub.Stop()
	}
	s.health.stop()
	s.writes.stop()
	s.reads.wait()
	return nil
}

var errClosed = errors.New("redisstore: store is closed")

// Warm dials a few connections, subscribes, loads the scripts and measures the server's clock
// ahead, so that the first stampede doesn't pay for it. It is bounded by ctx alone. In a cluster it
// returns an error while any master is away, and the store works all the same. For a server that
// the store can't work with, such as a replica, or a node of a cluster behind the client of a
// single server, the error says which client to make; Diagnose says more.
func (s *Store) Warm(ctx context.Context) error {
	sub, err := s.subscribe()
	if err != nil {
		return err
	}
	_, err = redislink.Aside(ctx, func(ctx context.Context) (struct{}, error) {
		var dialling sync.WaitGroup
		for range directReads {
			dialling.Go(func() { _ = s.link.Client().Ping(ctx).Err() })
		}
		for _, script := range scripts {
			if err := script.Load(ctx, s.link.Client()).Err(); err != nil {
				return struct{}{}, fmt.Errorf("loading scripts: %w", cmp.Or(s.suits(s.identify(ctx)), err))
			}
		}
		dialling.Wait()
		_, err := s.remeasure(ctx)
		return struct{}{}, cmp.Or(s.suits(s.identify(ctx)), err)
	})
	if err != nil {
		return fmt.Errorf("redisstore: warming up: %w", err)
	}
	return s.messages(ctx, sub)
}

// Now is Redis' clock: that of one node, as an offset to this process' monotonic clock, so that no
// wall clock of a client matters. A process whose first call is a Set measures it here.
func (s *Store) Now() time.Time {
	_ = s.knowTime(context.Background())
	return s.clock.now()
}

// Breakers returns how many circuit breakers are open, and how many there are: two for a server,
// one for all steps and one for those that write, or two for every 256 slots of a cluster.
func (s *Store) Breakers() (open, all int) {
	open, all = s.health.count()
	writes, more := s.writes.count()
	return open + writes, all + more
}

// Listening reports whether messages arrive. It begins the subscription, without waiting for it.
func (s *Store) Listening() bool {
	if s.listening.Load() {
		return true
	}
	_, _ = s.subscribe()
	return false
}
