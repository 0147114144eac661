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
	"github.com/cacheguard/cacheguard/internal/option"
	"github.com/cacheguard/cacheguard/internal/redislink"
)

// Options configures a Store. The zero value of a field means its default.
type Options struct {
	// Prefix begins the names of all keys and channels. It must not have braces. Stores with
	// different prefixes share nothing. Default "cg".
	Prefix string

	// OpTimeout is the longest time that a step in Redis may take, including the wait for a
	// connection and a second try. The second try is sent if the first one gets no answer within
	// half of OpTimeout. Default 250 ms; at least 2 ms.
	//
	// When many reads of a process come at once, they go in batches. A read then waits for its turn
	// as long as Redis answers other batches. The whole read takes four times OpTimeout at most.
	//
	// With a new connection a step takes up to five round trips, or six if the client has a
	// database number or a name, and go-redis gives the connection up if they take longer than a
	// try. So OpTimeout must be longer than twelve round trips. Otherwise a process that has lost
	// its connections can't use Redis again.
	OpTimeout time.Duration

	// Logger gets a line when messages stop arriving, when Redis stops answering, when Redis takes
	// no writes, and when each of these troubles is over. It also gets one line, once, if a missing
	// right makes reads of values with tags slower. Default [slog.Default].
	Logger *slog.Logger
}

// Store implements [cacheguard.Store] on Redis. It is safe for concurrent use. Make one Store for
// each process and client.
type Store struct {
	link   *redislink.Link
	opts   Options
	name   string // the name of this process, for the log
	names  names
	reads  reader
	health breakers // breakers for all steps
	writes breakers // breakers for the steps that write
	clock  clock

	// The generations that this process knows, in a cluster and with a client of the user's own
	// type. Nil for a single server, where generations are read along with a value.
	cluster *generationsKnown

	hearing

	scoreless atomic.Bool // the log already says that generations can't be read along with values
	closed    atomic.Bool
}

var (
	_ cacheguard.Store    = (*Store)(nil)
	_ cacheguard.Breakers = (*Store)(nil)
)

// New makes a store on a client of a single server, of Sentinel, or of a cluster. Its error joins
// the errors of all invalid options. New never dials. The client belongs to the caller:
// [Store.Close] doesn't close it.
//
// Set ContextTimeoutEnabled in the client's options. Without ContextTimeoutEnabled the client's
// calls ignore the context's deadline and last up to its ReadTimeout. If a client of a single
// server or of Sentinel doesn't have this option, the store uses a view: a copy of the client that
// has the option and shares the client's connections. A cluster client, or a client of your own
// type, is always called on another goroutine, one for each step. The client's hooks see every
// command except those of the subscription. If the store uses a view, hooks that are added after
// New see hardly any of its commands. The context that a hook gets has a deadline, but it is
// possible that its Done channel is never closed. So a hook must not leave a goroutine that waits
// for this channel. If a hook panics, the step returns an error with the panic, which may be the
// error of several reads. Two panics end the process: that of a hook of a node of a cluster client,
// because go-redis runs it on a goroutine of its own, and that of a DialHook while the subscription
// dials.
func New(rdb redis.UniversalClient, opts Options) (*Store, error) {
	var errs []error
	if opts.Prefix == "" {
		opts.Prefix = "cg"
	}
	if strings.ContainsAny(opts.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("redisstore: Options.Prefix %q has a brace", opts.Prefix))
	}
	errs = append(errs,
		option.Duration("redisstore: Options.OpTimeout", &opts.OpTimeout, 250*time.Millisecond,
			2*time.Millisecond))
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	link, err := redislink.New(rdb, opts.OpTimeout)
	if err != nil {
		errs = slices.Insert(errs, 0, fmt.Errorf("redisstore: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	s := &Store{
		link: link, opts: opts, name: uuid.NewString(), names: names{prefix: opts.Prefix},
		hearing: hearing{listeners: make(map[string][]*listener), hears: make(map[string]bool)},
	}
	if link.Direct() == nil { // also for a client of the user's own type, of which nothing is known
		s.cluster = &generationsKnown{}
	} else {
		s.inbox = strings.ReplaceAll(s.name, "-", "")[:inboxDigits]
	}
	s.health.initHealth(s, link.IsCluster())
	s.writes.initWrites(s, link.IsCluster())
	s.reads.init(s)
	s.clock.start()
	return s, nil
}

// StepTimeout returns [Options.OpTimeout].
func (s *Store) StepTimeout() time.Duration { return s.opts.OpTimeout }

// Close ends the subscription. Close the caches first. Calls of a closed store fail. A second Close
// does nothing.
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
	s.reads.close()
	return nil
}

var errClosed = errors.New("redisstore: store is closed")

// Warm prepares the store, so that the first stampede doesn't pay for it. It dials a few
// connections, subscribes, loads the scripts and measures the server's clock. Only ctx limits how
// long Warm takes. In a cluster it returns an error while a master, or a replica that the cluster
// lists, is away, but the store still works. If the store can't work with the server, the error
// says why, and which client or server is needed. It can't work, for example, with a replica, or
// with a node of a cluster behind the client of a single server. [Store.Diagnose] says more.
func (s *Store) Warm(ctx context.Context) error {
	sub, err := s.subscribe()
	if err != nil {
		return err
	}
	_, err = redislink.Aside(ctx, func(ctx context.Context) (struct{}, error) {
		var dialling sync.WaitGroup
		for range directReads {
			dialling.Go(func() { _, _ = redislink.Shielded(ctx, s.link.Client(), ping) })
		}
		for _, script := range scripts {
			if err := script.Load(ctx, s.link.Client()).Err(); err != nil {
				return struct{}{},
					fmt.Errorf("loading scripts: %w", cmp.Or(s.suits(s.identify(ctx)), err))
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

func ping(ctx context.Context, rdb redis.UniversalClient) (string, error) {
	return rdb.Ping(ctx).Result()
}

// Breakers returns how many circuit breakers are open, and how many there are. A server has two:
// one for all steps and one for the steps that write. A cluster has two for every 256 slots.
func (s *Store) Breakers() (open, all int) {
	open, all = s.health.count()
	writes, more := s.writes.count()
	return open + writes, all + more
}

// Listening reports whether messages arrive. It starts the subscription if necessary, without
// waiting for it.
func (s *Store) Listening() bool {
	if s.listening.Load() {
		return true
	}
	_, _ = s.subscribe()
	return false
}
