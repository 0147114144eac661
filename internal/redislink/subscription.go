package redislink

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

const (
	// If no data arrives for the time silence, a PING is sent. The answer to the PING may take the
	// same time. go-redis itself waits for ever on a half-open connection, because it doesn't wait
	// for the answer to a PING. Twice this time plus a dial is less than the two seconds in which a
	// break must be noticed.
	silence = 700 * time.Millisecond

	firstPause = 20 * time.Millisecond // pause before subscribing again
	mostPause  = 2 * time.Second
)

// Ear has the functions that a subscription calls, on its own goroutine, one after another.
type Ear struct {
	// Restored is called when messages begin to arrive: for the first time, and after each break.
	// During a break some messages may have been lost. From this call on, messages arrive on all
	// channels that the subscription had when it began to subscribe.
	Restored func(ctx context.Context)

	// Joined is called when messages of a channel that was added later begin to arrive. It may be
	// nil.
	Joined func(ctx context.Context, channel string)

	// Heard is called with each message.
	Heard func(payload string)

	// Lost is called with the reason when messages stop arriving, and again when an attempt to
	// subscribe has failed. If Stop has ended the session, the reason is context.Canceled.
	Lost func(err error)

	// NowAndThen is called after each message, and about every second without one. It may be nil.
	NowAndThen func(ctx context.Context)
}

// Subscription keeps one connection on which the messages of its channels arrive.
type Subscription struct {
	link      *Link
	pattern   string // pattern of further channels; may be empty
	ear       Ear
	cancel    context.CancelFunc
	ended     chan struct{}
	confirmed chan struct{} // closed when the subscription was confirmed for the first time

	// With a client of sentinels: the run id of the subscription's server.
	server  atomic.Pointer[string]
	checked time.Time // when this server was last compared with the server of commands

	mu     sync.Mutex          // guards the fields below
	last   error               // the reason why messages don't arrive
	wanted map[string]struct{} // the subscription's channels
	at     *session            // nil while messages don't arrive
}

// Subscribe starts a subscription to channels and, unless it is empty, to a pattern of channels. It
// doesn't wait for the subscription. [Subscription.Stop] ends it.
func (l *Link) Subscribe(ear Ear, pattern string, channels ...string) *Subscription {
	ctx, cancel := context.WithCancel(context.Background())
	sub := &Subscription{
		link: l, pattern: pattern, ear: ear, wanted: make(map[string]struct{}),
		cancel: cancel, ended: make(chan struct{}), confirmed: make(chan struct{}),
	}
	for _, channel := range channels {
		sub.wanted[channel] = struct{}{}
	}
	go sub.run(ctx)
	return sub
}

// Confirmed returns a channel that is closed when messages have begun to arrive.
func (sub *Subscription) Confirmed() <-chan struct{} { return sub.confirmed }

// Ended returns a channel that is closed when the subscription has ended.
func (sub *Subscription) Ended() <-chan struct{} { return sub.ended }

// Last returns the reason why messages don't arrive, or the reason of the last break, or nil.
func (sub *Subscription) Last() error {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return sub.last
}

// Stop ends the subscription and waits for its end. It doesn't wait for a cluster client that dials
// without obeying its context.
func (sub *Subscription) Stop() {
	sub.cancel()
	timer := time.NewTimer(2 * sub.link.timeout)
	defer timer.Stop()
	select {
	case <-sub.ended:
	case <-timer.C:
	}
}

// run runs one session after another.
func (sub *Subscription) run(ctx context.Context) {
	defer close(sub.ended)
	pause := firstPause
	for again := false; ctx.Err() == nil; again = true {
		err := sub.listen(ctx, sub.client(ctx, again), func() { pause = firstPause })
		if ctx.Err() != nil {
			err = ctx.Err()
		} else if NoAnswer(err) && !errors.Is(err, errAgain) && !errors.Is(err, errElsewhere) {
			err = sub.link.Told(err) // while the dials that belong to this error are known
		}
		sub.mu.Lock()
		sub.last = err
		sub.mu.Unlock()
		sub.ear.Lost(err)
		if ctx.Err() != nil {
			return
		}
		sub.link.reroute(ctx)
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, mostPause)
	}
}

// client returns the client to subscribe with. Every node of a cluster has all messages. But
// go-redis subscribes at the node that has the channel's slot, even if that node is dead. So after
// a break, client chooses any node.
func (sub *Subscription) client(ctx context.Context, again bool) redis.UniversalClient {
	l := sub.link
	switch c := l.rdb.(type) {
	case *redis.ClusterClient:
		if !again {
			break
		}
		if node, err := c.MasterForKey(ctx, uuid.NewString()); err == nil {
			return l.view(node)
		}
	case *redis.Client:
		if c.Options().Addr != failover {
			break
		}
		view := l.view(c)
		before := view.Options().OnConnect
		view.Options().OnConnect = func(ctx context.Context, cn *redis.Conn) error {
			if before != nil {
				if err := before(ctx, cn); err != nil {
					return err
				}
			}
			id := runID(ctx, cn)
			sub.server.Store(&id)
			return nil
		}
		return view
	}
	return l.listen
}

var errElsewhere = errors.New("another server is the master now")

// elsewhere reports whether commands and messages use different servers. If sentinels make another
// server the master, go-redis sends commands to the new master, but keeps a subscription at the old
// one. The old master may be alive and not know for many seconds that it is no longer the master.
// During this time it has no messages, but answers every PING.
func (sub *Subscription) elsewhere(ctx context.Context) bool {
	here := sub.server.Load()
	if here == nil || *here == "" || time.Since(sub.checked) < silence {
		return false
	}
	sub.checked = time.Now()
	there, err := Twice(ctx, sub.link, func(
		ctx context.Context, rdb redis.UniversalClient,
	) (string, error) {
		return runID(ctx, rdb), nil
	})
	return err == nil && there != "" && there != *here
}

// runID returns the id of a server's process, or an empty string if the server doesn't say.
func runID(ctx context.Context, rdb interface {
	Info(ctx context.Context, sections ...string) *redis.StringCmd
}) string {
	info, _ := rdb.Info(ctx, "server").Result()
	for line := range strings.Lines(info) {
		if id, found := strings.CutPrefix(line, "run_id:"); found {
			return strings.TrimSpace(id)
		}
	}
	return ""
}

func (sub *Subscription) confirm() {
	select {
	case <-sub.confirmed:
	default:
		close(sub.confirmed)
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
