package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redislink"
	"github.com/cacheguard/cacheguard/internal/report"
)

const (
	inboxDigits = 16          // of the name of an inbox, in hexadecimal
	waitersStay = time.Second // longer than the lease: those whose leader has died may still be on their way to ask
)

// hearing is what a store knows of its messages.
type hearing struct {
	inbox     string       // where it is told of loads that it waits for; empty if it hears of everything on one channel
	listening atomic.Bool  // messages arrive
	changed   atomic.Int64 // when the store was last used to change something, since the clock's base

	mu        sync.Mutex // guards what follows
	listeners map[string][]*listener
	hears     map[string]bool         // caches whose messages arrive
	sub       *redislink.Subscription // nil until the first lease is asked for
}

// subscribe starts the subscription if it is not there yet, and doesn't wait for it.
func (s *Store) subscribe() (*redislink.Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, errClosed
	}
	if s.sub == nil {
		e := &ear{s: s}
		pattern, channels := s.channels()
		s.sub = s.link.Subscribe(redislink.Ear{
			Restored: e.restored, Joined: e.joined, Heard: s.deliver, Lost: e.lost, NowAndThen: e.nowAndThen,
		}, pattern, channels...)
	}
	return s.sub, nil
}

// channels is where messages for this process are published: those about its caches, those about
// loads that it waits for, and what programs publish that know of one channel for all. These count
// who subscribes to that one to find out whether such a program is there, and a pattern isn't
// counted. It needs mu.
func (s *Store) channels() (pattern string, channels []string) {
	if s.inbox == "" {
		return "", []string{s.names.channel()}
	}
	channels = append(channels, s.names.inbox(s.inbox))
	for cache := range s.listeners {
		channels = append(channels, s.names.channelOf(cache))
	}
	return literally.Replace(s.names.channel()), channels
}

// literally makes a pattern that matches one name.
var literally = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// channelOf is where changes of a cache are published.
func (s *Store) channelOf(cache string) string {
	if s.inbox == "" {
		return s.names.channel()
	}
	return s.names.channelOf(cache)
}

// messages waits until messages arrive.
func (s *Store) messages(ctx context.Context, sub *redislink.Subscription) error {
	select {
	case <-sub.Confirmed():
		return nil
	case <-sub.Ended():
		return errClosed
	case <-ctx.Done():
		return fmt.Errorf("redisstore: subscribing to %s: %w", s.names.channel(), errors.Join(ctx.Err(), sub.Last()))
	}
}

var (
	deafLine = report.Line{Level: slog.LevelWarn, Text: "redisstore: messages don't arrive", See: "messages-dont-arrive",
		Means: "callers who wait for another process ask from time to time, and local tiers are not used"}
	heardLine = report.Line{Level: slog.LevelInfo, Text: "redisstore: messages arrive again", See: "messages-dont-arrive"}
)

// ear hears what the subscription tells. Its methods are called one after another.
type ear struct {
	s       *Store
	lacks   bool // the caches know that messages don't arrive
	spell   report.Spell
	masters masters // of a cluster
}

func (e *ear) restored(ctx context.Context) {
	s := e.s
	_ = e.newMasters(ctx) // those that there are from now on
	clock, err := s.remeasure(ctx)
	e.spell.End(ctx, heardLine, s.opts.Logger, "process", s.name, "server", s.link.Server())
	e.lacks = false
	s.tellAll(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: s.unheard(clock, err)}, true)
}

// joined tells the caches of a channel that came after the others.
func (e *ear) joined(channel string) {
	s := e.s
	s.mu.Lock()
	var all []*listener
	for cache, some := range s.listeners {
		if s.channelOf(cache) == channel && !s.hears[cache] {
			s.hears[cache] = true
			all = some
		}
	}
	s.mu.Unlock()
	for _, l := range all {
		l.hear(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: s.latest()})
	}
}

func (e *ear) lost(err error) {
	s := e.s
	if !e.lacks { // also when they never did
		e.lacks = true
		s.tellAll(cacheguard.Message{Kind: cacheguard.MessageLost}, false)
	}
	if !errors.Is(err, context.Canceled) { // Close is no trouble
		e.spell.Begin(context.Background(), deafLine, s.opts.Logger, "process", s.name, "error", s.explained(err))
	}
}

func (e *ear) nowAndThen(ctx context.Context) {
	if e.s.clock.due() {
		_, _ = e.s.remeasure(ctx)
	}
	if e.newMasters(ctx) && e.s.listening.Load() {
		e.restored(ctx) // another node may not know what caches have told this one
	}
}

func (e *ear) newMasters(ctx context.Context) bool {
	c, ok := e.s.link.Client().(*redis.ClusterClient)
	return ok && e.masters.changed(ctx, c, e.s.doubts())
}

// repeated is for how long caches want to know of a failover that may have lost a change.
const repeated = 30 * time.Second

// changes takes note that Redis is told of a change. What a failover loses of them is noticed by
// the subscription, also in a process that only writes.
func (s *Store) changes() {
	s.changed.Store(int64(s.clock.elapsed()))
	_, _ = s.subscribe()
}

// doubts reports whether a master may have been told of changes that its replicas don't have.
func (s *Store) doubts() bool {
	last := time.Duration(s.changed.Load())
	return last > 0 && s.clock.elapsed()-last < repeated
}

// unheard is up to which generation invalidations may not have been heard of, when messages arrive
// since before the server's clock said this.
func (s *Store) unheard(said time.Time, err error) int64 {
	switch {
	case err != nil:
		said = s.clock.now().Add(doubt)
	case s.cluster != nil: // another node has the generations
		said = said.Add(doubt)
	}
	return said.UnixMicro()
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
	var untold []*listener                                                                       // that began before, and whom joined won't tell any more
	if s.sub != nil && !s.hears[cache] && s.sub.Join(s.channelOf(cache)) && s.listening.Load() { // else all will be told soon
		s.hears[cache] = true
		untold = s.listeners[cache][:len(s.listeners[cache])-1]
	}
	already := s.hears[cache]
	l.mu.Lock() // before s.mu is free: what is told of the subscription from here on comes after this
	s.mu.Unlock()
	if already {
		tell(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: s.latest()})
	}
	l.mu.Unlock()
	for _, other := range untold {
		other.hear(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: s.latest()})
	}
	return func() {
		s.mu.Lock()
		s.listeners[cache] = slices.DeleteFunc(slices.Clone(s.listeners[cache]), func(x *listener) bool { return x == l })
		if len(s.listeners[cache]) == 0 {
			delete(s.listeners, cache)
			delete(s.hears, cache)
			if s.sub != nil && s.inbox != "" {
				s.sub.Leave(s.channelOf(cache))
			}
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
		s.cluster.heard(cache, m.Tags, m.Generation, s.latest())
	}
	s.mu.Lock()
	all := s.listeners[cache]
	s.mu.Unlock()
	for _, l := range all {
		l.hear(m)
	}
}

// tellAll tells every cache that messages arrive, or that they don't. One whose channel came later
// is told when they do.
func (s *Store) tellAll(m cacheguard.Message, listening bool) {
	s.mu.Lock()
	if s.cluster != nil {
		s.cluster.trust.Add(1)
	}
	s.listening.Store(listening)
	clear(s.hears)
	var all []*listener
	for cache, some := range s.listeners {
		if listening && !s.sub.Stands(s.channelOf(cache)) {
			continue
		}
		if listening {
			s.hears[cache] = true
		}
		all = append(all, some...)
	}
	s.mu.Unlock()
	for _, l := range all {
		l.hear(m)
	}
}
