package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redislink"
	"github.com/cacheguard/cacheguard/internal/report"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

// master is one of the independent servers. It is safe for concurrent use.
type master struct {
	index   int
	suffix  string // the end of the tokens for this master
	rdb     redis.UniversalClient
	link    *redislink.Link // for messages
	timeout time.Duration   // of each request
	rules   redislink.Rules
	logger  *slog.Logger
	silent  atomic.Bool   // a request failed, and no other request succeeded since it began
	spell   report.Spell  // the period in which the master is silent
	answers atomic.Uint64 // number of replies that were no error
	debts   *tenure.Debts // releases that the master hasn't confirmed
}

// said is the statement of a master about a lock: whose lock it is on this master.
type said int

const (
	nothing said = iota // no reply, or an error
	mine                // the lock of this claim: just granted, renewed, or held until this release
	other
	free
)

// answer is the reply of one master.
type answer struct {
	master int
	said   said
	holder string // if said is other: the holder's token; only an acquisition returns it
	// If said is other: the time until the holder's lock ends there; negative if it has no end.
	left time.Duration
	// The place of this process among the processes that wait there; in the reply to a release, the
	// number of waiting processes.
	place  int
	unsent bool // if said is nothing: the master can't have carried out the request
	// If said is other, after an acquisition: the master that is the same server, because the
	// holder's token is this claim's token for it.
	twin *master
	// If said is other: the holder's lock has no end, or an end that no lease can have.
	stuck bool
	err   error // if said is nothing: the reason
}

func newMaster(index int, rdb redis.UniversalClient, opts Options) (*master, error) {
	link, err := redislink.New(rdb, max(opts.NodeTimeout, leastPatience))
	if err != nil {
		return nil, fmt.Errorf("redlock: master %d: %w", index, err)
	}
	m := &master{
		index: index, suffix: fmt.Sprintf("%02x", index), rdb: rdb, link: link,
		timeout: opts.NodeTimeout, logger: opts.Logger,
	}
	m.rules = redislink.Rules{
		Package: "redlock", Keys: opts.Prefix + ":*", Channel: opts.channel(), Sources: sources,
	}
	c, ok := rdb.(*redis.Client)
	if !ok {
		// A client type of the user's own: claim.collect waits for it no longer than the timeout.
		return m, nil
	}
	if o := c.Options(); !o.ContextTimeoutEnabled || o.MaxRetries > 0 {
		// The view is a copy of the client that uses the same connections, but doesn't retry. A
		// client that retries would still be busy with a request when the reply is no longer of
		// use, and a copy of the request could reach the master at any time.
		view := redislink.View(c, m.timeout)
		view.Options().MaxRetries = 0
		m.rdb = view
	}
	return m, nil
}

// acquire requests a lock.
func (m *master) acquire(
	ctx context.Context, key, token string, lease time.Duration, w wish,
) answer {
	force := ""
	if w.force {
		force = "1"
	}
	a := m.run(ctx, acquireScript, key, token, lease.Milliseconds(), w.waiter, force)
	a.stuck = a.said == other && tenure.Endless(a.left, lease)
	return a
}

// renew extends a lock.
func (m *master) renew(ctx context.Context, key, token string, lease time.Duration) answer {
	return m.run(ctx, renewScript, key, token, lease.Milliseconds())
}

// release gives a lock back, and sends a message to the processes that wait for it.
func (m *master) release(ctx context.Context, key, token, channel, name string) answer {
	return m.run(ctx, releaseScript, key, token, channel, name)
}

// run runs a script once.
func (m *master) run(ctx context.Context, script *redis.Script, key string, args ...any) answer {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	before := m.answers.Load()
	reply, err := redislink.Shielded(ctx, m.rdb, func(
		ctx context.Context, rdb redis.UniversalClient,
	) ([]any, error) {
		return script.Run(ctx, rdb, []string{key}, args...).Slice()
	})
	a := answer{err: err}
	if err == nil {
		a = parse(reply)
	}
	a.master = m.index
	m.note(a.err, before)
	if a.err != nil {
		a.err = fmt.Errorf("master %d: %w", m.index, m.rules.Explained(m.exhausted(a.err), key))
		a.unsent = unsent(err)
	}
	return a
}

// exhausted returns the error of a request. If the request waited for a connection until its time
// was over, the error names this reason.
func (m *master) exhausted(err error) error {
	if c, ok := m.rdb.(*redis.Client); ok {
		return redislink.Exhausted(c, err)
	}
	return err
}

// late returns the error of a request that got no reply in time.
func (m *master) late() error {
	if err := m.exhausted(context.DeadlineExceeded); errors.Is(err, redislink.ErrExhausted) {
		return fmt.Errorf("master %d: no connection within %v: %v", m.index, m.timeout, err)
	}
	return fmt.Errorf("master %d: no answer within %v", m.index, m.timeout)
}

const mostMillis = math.MaxInt64 / int64(time.Millisecond) // the longest time.Duration

// parse reads the reply of a script.
func parse(reply []any) (a answer) {
	number := func(i int) int64 {
		if i >= len(reply) {
			return 0
		}
		n, _ := reply[i].(int64)
		return n
	}
	a.left = -1
	switch {
	case len(reply) == 0:
	case reply[0] == "mine":
		a.said, a.place = mine, int(number(1))
	case reply[0] == "free":
		a.said = free
	case reply[0] == "other":
		a.said = other
		if len(reply) > 1 {
			a.holder, _ = reply[1].(string)
			a.left, a.place = time.Duration(min(number(2), mostMillis))*time.Millisecond,
				int(number(3))
		}
	}
	if a.said == nothing {
		a.err = fmt.Errorf("the script answered %q", reply)
	}
	return a
}

// unsent reports whether the master can't have carried a request out, because the master was not
// reached or refused the request.
func unsent(err error) bool {
	var refusal redis.Error // an error that the server returned; the scripts write last
	var op *net.OpError
	return errors.As(err, &refusal) || errors.As(err, &op) && op.Op == "dial" ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed)
}

var (
	awayLine = report.Line{Level: slog.LevelWarn, Text: "redlock: a master can't be used",
		Means: "locks need a majority of all masters, so few more may fail",
		See:   "locks-cant-be-had"}
	backLine = report.Line{
		Level: slog.LevelInfo, Text: "redlock: a master can be used again",
		See: "locks-cant-be-had",
	}
)

// note records whether the master replies, and writes a log line when that changes. before is the
// number of replies when the request began. If the number has grown since then, the master isn't
// silent, but this process sends too much at once. If note called the master silent in this case,
// the limit on the number of requests would not apply, and after a silence thousands of locks would
// go on failing together.
func (m *master) note(err error, before uint64) {
	if err == nil {
		m.answers.Add(1)
	}
	switch failed := err != nil; {
	case failed && m.answers.Load() != before:
	case failed:
		m.silent.Store(true)
		if m.spell.Due() {
			m.spell.Begin(context.Background(), awayLine, m.logger, "master", m.index, "error",
				m.link.Told(err))
		}
	case m.silent.Load() || m.spell.Told():
		m.silent.Store(false)
		m.spell.End(context.Background(), backLine, m.logger, "master", m.index)
	}
}
