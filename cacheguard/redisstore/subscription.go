package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
)

const (
	// silence is how long nothing may come before a PING is sent, and then how long its answer may take. go-redis
	// itself waits for ever on a half-open connection: nobody there waits for the answer. Twice this and a dial stays
	// below the two seconds in which a break must be noticed.
	silence = 700 * time.Millisecond

	firstPause = 20 * time.Millisecond // before subscribing again
	mostPause  = 2 * time.Second
)

// subscription keeps one connection on which messages arrive, for all caches of the store.
type subscription struct {
	s         *Store
	cancel    context.CancelFunc
	ended     chan struct{}
	confirmed chan struct{} // closed when it stood for the first time

	server  atomic.Pointer[string] // the run id of the server it is at, of a client of sentinels
	checked time.Time              // when that was compared with the server that commands go to

	mu   sync.Mutex // guards last
	last error      // why it doesn't stand
}

// subscribe starts the subscription if it is not there yet, and doesn't wait for it.
func (s *Store) subscribe() (*subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, errClosed
	}
	if s.sub == nil {
		ctx, cancel := context.WithCancel(context.Background())
		s.sub = &subscription{s: s, cancel: cancel, ended: make(chan struct{}), confirmed: make(chan struct{})}
		go s.sub.run(ctx)
	}
	return s.sub, nil
}

// ready waits until the subscription stands.
func (sub *subscription) ready(ctx context.Context) error {
	select {
	case <-sub.confirmed:
		return nil
	case <-sub.ended:
		return errClosed
	case <-ctx.Done():
		sub.mu.Lock()
		defer sub.mu.Unlock()
		return fmt.Errorf("redisstore: subscribing to %s: %w", sub.s.names.channel(), errors.Join(ctx.Err(), sub.last))
	}
}

// stop ends the subscription, and waits for it, but not for a cluster client that dials without looking at its context.
func (sub *subscription) stop() {
	sub.cancel()
	timer := time.NewTimer(2 * sub.s.opts.OpTimeout)
	defer timer.Stop()
	select {
	case <-sub.ended:
	case <-timer.C:
	}
}

// run holds one session after another.
func (sub *subscription) run(ctx context.Context) {
	defer close(sub.ended)
	s, pause, said := sub.s, firstPause, false
	for again := false; ctx.Err() == nil; again = true {
		err := sub.session(ctx, sub.client(ctx, again), func() {
			pause = firstPause
			if said {
				s.opts.Logger.Info("redisstore: messages arrive again", "process", s.name)
				said = false
			}
		})
		if s.listening.Load() {
			s.tellAll(cacheguard.Message{Kind: cacheguard.MessageLost}, false)
		}
		if ctx.Err() != nil {
			return
		}
		s.reroute(ctx)
		sub.mu.Lock()
		sub.last = err
		sub.mu.Unlock()
		if !said { // once for each break
			s.opts.Logger.Warn("redisstore: messages don't arrive; waiting callers ask from time to time", "process", s.name, "error", err)
			said = true
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, mostPause)
	}
}

// session subscribes and delivers messages until the connection is lost or silent.
func (sub *subscription) session(ctx context.Context, rdb redis.UniversalClient, standing func()) error {
	s := sub.s
	ps := rdb.Subscribe(ctx) // no channel yet: this doesn't dial
	defer ps.Close()
	defer context.AfterFunc(ctx, func() { _ = ps.Close() })() // a read of the socket doesn't see the context
	if err := ps.Subscribe(ctx, s.names.channel()); err != nil {
		return err
	}
	pinged := false
	for {
		got, err := ps.ReceiveTimeout(ctx, silence)
		if sub.elsewhere(ctx) {
			return errElsewhere
		}
		if err != nil {
			if !isTimeout(err) {
				return err
			}
			if pinged {
				return fmt.Errorf("no answer to a PING within %v", silence)
			}
			if err := ps.Ping(ctx); err != nil {
				return err
			}
			pinged = true
			continue
		}
		pinged = false
		switch got := got.(type) {
		case *redis.Subscription:
			// Only now is it certain that nothing published from here on is missed. What was published before may
			// have been, also when go-redis has subscribed again by itself.
			said, err := s.remeasure(ctx)
			standing()
			s.tellAll(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: s.unheard(said, err)}, true)
			sub.confirm()
		case *redis.Message:
			s.deliver(got.Payload)
		}
		if s.clock.due() {
			_, _ = s.remeasure(ctx)
		}
	}
}

// unheard is up to which generation invalidations may not have been heard of, when messages arrive since before the
// server's clock said this.
func (s *Store) unheard(said time.Time, err error) int64 {
	switch {
	case err != nil:
		said = s.clock.now().Add(doubt)
	case s.cluster != nil: // another node has the generations
		said = said.Add(doubt)
	}
	return said.UnixMicro()
}

// client is what to subscribe with. Every node of a cluster has all messages, but go-redis subscribes at the one that has
// the channel's slot, also when it is dead: after a break it is any node.
func (sub *subscription) client(ctx context.Context, again bool) redis.UniversalClient {
	s := sub.s
	switch c := s.rdb.(type) {
	case *redis.ClusterClient:
		if !again {
			break
		}
		if node, err := c.MasterForKey(ctx, uuid.NewString()); err == nil {
			return s.view(node)
		}
	case *redis.Client:
		if c.Options().Addr != "FailoverClient" { // so go-redis calls it
			break
		}
		view := s.view(c)
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
	return s.listen
}

var errElsewhere = errors.New("another server is the master now")

// elsewhere reports whether commands go to another server than messages come from. When sentinels make another server
// the master, go-redis takes its commands there and leaves a subscription where it is; the old master may be alive, and
// not told of its fate for many seconds, in which it has no messages and answers every PING.
func (sub *subscription) elsewhere(ctx context.Context) bool {
	here := sub.server.Load()
	if here == nil || *here == "" || time.Since(sub.checked) < silence {
		return false
	}
	sub.checked = time.Now()
	there, err := twice(ctx, sub.s, func(ctx context.Context, rdb redis.UniversalClient) (string, error) {
		return runID(ctx, rdb), nil
	})
	return err == nil && there != "" && there != *here
}

// runID names a server's process, or is empty if the server doesn't say.
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

func (sub *subscription) confirm() {
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

// listener is one cache's ear.
type listener struct {
	mu   sync.Mutex // guards tell, and is held while it runs, so that nothing is told after stop
	tell func(cacheguard.Message)
}

// Listen has tell called for each message about this cache.
func (s *Store) Listen(cache string, tell func(cacheguard.Message)) (stop func()) {
	l := &listener{tell: tell}
	s.mu.Lock()
	s.listeners[cache] = append(slices.Clip(s.listeners[cache]), l)
	already := s.listening.Load()
	l.mu.Lock() // before s.mu is free: what is told of the subscription from here on comes after this
	s.mu.Unlock()
	if already {
		tell(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: s.clock.now().Add(doubt).UnixMicro()})
	}
	l.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.listeners[cache] = slices.DeleteFunc(slices.Clone(s.listeners[cache]), func(x *listener) bool { return x == l })
		if len(s.listeners[cache]) == 0 {
			delete(s.listeners, cache)
		}
		s.mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.tell = nil
	}
}

func (l *listener) hear(m cacheguard.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tell != nil {
		l.tell(m)
	}
}

// deliver tells the caches of a message. What is no message is dropped.
func (s *Store) deliver(payload string) {
	cache, m, ok := decodeMessage(payload)
	if !ok {
		return
	}
	if m.Kind == cacheguard.MessageTags && s.cluster != nil {
		s.cluster.heard(cache, m.Tags, m.Generation)
	}
	s.mu.Lock()
	all := s.listeners[cache]
	s.mu.Unlock()
	for _, l := range all {
		l.hear(m)
	}
}

// tellAll tells every cache that messages arrive, or that they don't.
func (s *Store) tellAll(m cacheguard.Message, listening bool) {
	s.mu.Lock()
	if s.cluster != nil {
		s.cluster.trust.Add(1)
	}
	s.listening.Store(listening)
	var all []*listener
	for _, some := range s.listeners {
		all = append(all, some...)
	}
	s.mu.Unlock()
	for _, l := range all {
		l.hear(m)
	}
}
