package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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

const inboxDigits = 16 // digits in the name of an inbox, in hexadecimal

// hearing is the state of a store's messages.
type hearing struct {
	inbox     string      // name of this process's inbox; empty if all messages come on one channel
	listening atomic.Bool // messages arrive
	deaf      atomic.Pointer[deafness]
	// When the store last changed something, by clock.elapsed.
	changed atomic.Int64

	mu        sync.Mutex // guards the fields below
	listeners map[string][]*listener
	hears     map[string]bool         // caches whose messages arrive
	sub       *redislink.Subscription // nil until the subscription is started
}

// deafness is the last period in which messages did not arrive.
type deafness struct {
	since, last time.Time // when it began, when listening last failed
	ended       time.Time // zero: messages don't arrive
	err         error
}

// steady is how long messages must have arrived before a deafness counts as over. If a Redis user
// may subscribe but not send PING, messages arrive again and again, for less than a second each
// time.
const steady = 3 * time.Second

// over reports whether the deafness counts as over.
func (d *deafness) over() bool {
	return d == nil || !d.ended.IsZero() && time.Since(d.ended) >= steady
}

// Deafness returns why messages don't arrive, since when, and when listening last failed. For some
// seconds after messages have begun to arrive again, it still returns the cause. See
// [cacheguard.Deafness].
func (s *Store) Deafness() (since, last time.Time, err error) {
	if d := s.deaf.Load(); !d.over() {
		return d.since, d.last, d.err
	}
	return since, last, nil
}

// subscribe starts the subscription if it isn't started yet. It doesn't wait until messages arrive.
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
			Restored: e.restored, Joined: e.joined, Heard: s.deliver, Lost: e.lost,
			NowAndThen: e.nowAndThen,
		}, pattern, channels...)
	}
	return s.sub, nil
}

// channels returns the channels on which messages for this process are published: messages about
// its caches, messages about loads that it waits for, and messages of programs that know only the
// common channel. For a store without an inbox this is the common channel alone. Otherwise the
// common channel is returned as a pattern. Programs count the subscribers of the common channel to
// find out whether there are programs that know no other channel. A pattern isn't counted, so this
// process doesn't count as one of them. The caller holds mu.
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

// literally escapes a name, so that as a pattern it matches only itself.
var literally = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// channelOf returns the channel on which changes of a cache are published.
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
		return fmt.Errorf("redisstore: subscribing to %s: %w", s.names.channel(),
			errors.Join(ctx.Err(), sub.Last()))
	}
}

var (
	deafLine = report.Line{Level: slog.LevelWarn, Text: "redisstore: messages don't arrive",
		See:   "messages-dont-arrive",
		Means: "calls that wait for another process poll Redis, and local tiers are not used"}
	heardLine = report.Line{
		Level: slog.LevelInfo, Text: "redisstore: messages arrive again",
		See: "messages-dont-arrive",
	}
)

// ear receives the reports of the subscription. Its methods are called one after another.
type ear struct {
	s       *Store
	lacks   bool // the caches know that messages don't arrive
	spell   report.Spell
	guessed bool    // caches were told an estimate, which is to be corrected; not in a cluster
	refused bool    // Redis turns the subscription away
	lacked  string  // the missing right when Redis last turned the subscription away
	masters masters // in a cluster
}

func (e *ear) restored(ctx context.Context) {
	s := e.s
	_ = e.newMasters(ctx)       // remembers the present masters
	said, err := s.measure(ctx) // also while the breaker is open
	e.spell.End(ctx, heardLine, s.opts.Logger, "process", s.name, "server", s.link.Server())
	e.lacks = false
	if d := s.deaf.Load(); d != nil && d.ended.IsZero() {
		ended := *d
		ended.ended = time.Now()
		s.deaf.Store(&ended)
	}
	var since map[string]int64
	if err == nil {
		if s.cluster != nil { // another node has the generations, and its clock may be ahead
			said = said.Add(doubt)
		}
		s.mu.Lock()
		caches := slices.Collect(maps.Keys(s.listeners))
		s.mu.Unlock()
		since, err = s.unheard(ctx, said, caches)
		e.guesses(err)
	} else { // also if Redis has answered with an error: while it loads its data it subscribes
		e.guessed = s.cluster == nil
	}
	s.tellAll(true, since)
}

// guesses notes whether the read of last generations, which ended with err, got no answer. If Redis
// answers with an error, it may do so for ever.
func (e *ear) guesses(err error) {
	e.guessed = err != nil && redislink.NoAnswer(err) && e.s.cluster == nil
}

// joined is called when the messages of a channel that was joined after the others begin to arrive.
// If it is a cache's channel, joined tells the cache's listeners. If the channel was left in the
// meantime, because the cache was closed, joined tells nobody. If the cache was then opened again,
// its channel is joined again, and the next call of joined tells its listeners.
func (e *ear) joined(ctx context.Context, channel string) {
	s := e.s
	var opened []string // at most one
	s.mu.Lock()
	for cache := range s.listeners {
		if !s.hears[cache] && s.channelOf(cache) == channel {
			opened = append(opened, cache)
		}
	}
	s.mu.Unlock()
	var since map[string]int64
	if !e.guessed { // otherwise each cache that is opened would keep messages waiting
		var err error
		since, err = s.unheard(ctx, s.clock.now().Add(doubt), opened)
		e.guesses(err)
	}
	for _, cache := range opened {
		s.mu.Lock()
		all := s.listeners[cache]
		if !s.sub.Stands(channel) {
			all = nil
		} else if all != nil {
			s.hears[cache] = true
		}
		s.mu.Unlock()
		m := s.restoredFrom(since[cache])
		for _, l := range all {
			l.hear(m)
		}
	}
}

// restoredFrom returns the message that messages arrive. since is 0 if the last generation wasn't
// read.
func (s *Store) restoredFrom(since int64) cacheguard.Message {
	return cacheguard.Message{
		Kind: cacheguard.MessageRestored, Generation: cmp.Or(since, s.latest()),
	}
}

func (e *ear) lost(err error) {
	s := e.s
	if !e.lacks { // also if messages have never arrived
		e.lacks = true
		s.tellAll(false, nil)
	}
	if errors.Is(err, context.Canceled) { // Close is not an error
		return
	}
	err = s.explained(err)
	d := &deafness{since: time.Now(), err: err}
	d.last = d.since
	if before := s.deaf.Load(); !before.over() {
		d.since = before.since
	}
	s.deaf.Store(d)
	refused, lacks := redislink.TurnsAway(err), report.Lacks(err)
	if refused && (!e.refused || lacks != e.lacked) {
		// So far the log says that the connection was cut, or names another right, for instance.
		e.spell.Anew()
	}
	e.refused, e.lacked = refused, lacks
	e.spell.Begin(context.Background(), deafLine, s.opts.Logger, "process", s.name, "error", err)
}

func (e *ear) nowAndThen(ctx context.Context) {
	if e.s.clock.due() {
		_, _ = e.s.remeasure(ctx)
	}
	// A new master may not know changes that caches have told the old one.
	again := e.newMasters(ctx)
	if !again && e.guessed && e.s.clock.rested(guessAge) {
		_, err := e.s.remeasure(ctx)
		again = err == nil // caches do much when they are told, so not while Redis gives no answer
	}
	if again && e.s.listening.Load() {
		e.restored(ctx)
	}
}

func (e *ear) newMasters(ctx context.Context) bool {
	c, ok := e.s.link.Client().(*redis.ClusterClient)
	return ok && e.masters.changed(ctx, c, e.s.doubts())
}

// repeated is for how long after a change the store keeps asking a cluster for its masters, because
// a failover may lose the change.
const repeated = 30 * time.Second

// changes records that the store is about to send Redis a change. Only the subscription notices a
// failover, which may lose the change. So changes starts the subscription, also in a process that
// only writes.
func (s *Store) changes() {
	s.changed.Store(int64(s.clock.elapsed()))
	_, _ = s.subscribe()
}

// doubts reports whether a master may know changes that its replicas don't have.
func (s *Store) doubts() bool {
	last := time.Duration(s.changed.Load())
	return last > 0 && s.clock.elapsed()-last < repeated
}

// listener is one listener of a cache's messages.
type listener struct {
	mu   sync.Mutex // guards tell, and is held while tell runs, so that nothing is told after stop
	tell func(cacheguard.Message)
}

// Listen registers tell, which is called for each message about this cache.
func (s *Store) Listen(cache string, tell func(cacheguard.Message)) (stop func()) {
	l := &listener{tell: tell}
	s.mu.Lock()
	s.listeners[cache] = append(slices.Clip(s.listeners[cache]), l)
	// Earlier listeners of this cache, if they have to be told here.
	var untold []*listener
	// If the channel's messages don't arrive yet, ear.joined or ear.restored tells all listeners.
	if s.sub != nil && !s.hears[cache] && s.sub.Join(s.channelOf(cache)) && s.listening.Load() {
		s.hears[cache] = true
		untold = s.listeners[cache][:len(s.listeners[cache])-1]
	}
	already := s.hears[cache]
	// l.mu is locked before s.mu is unlocked, so that later reports of the subscription are told
	// after this one.
	l.mu.Lock()
	s.mu.Unlock()
	if already {
		tell(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: s.latest()})
	}
	l.mu.Unlock()
	for _, other := range untold {
		other.mu.Lock()
		// If messages were lost meanwhile, MessageRestored must not be told after the loss.
		if other.tell != nil && s.listening.Load() {
			other.tell(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: s.latest()})
		}
		other.mu.Unlock()
	}
	return func() {
		s.mu.Lock()
		s.listeners[cache] = slices.DeleteFunc(slices.Clone(s.listeners[cache]), func(
			x *listener,
		) bool {
			return x == l
		})
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

// deliver passes a message on to the listeners of its cache. Anything that isn't a message is
// dropped.
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

// tellAll tells every cache that messages arrive, and up to which generation they may have been
// missed, or that they don't arrive. A cache whose channel was joined later is told when that
// channel's messages arrive.
func (s *Store) tellAll(listening bool, since map[string]int64) {
	s.mu.Lock()
	if s.cluster != nil {
		s.cluster.trust.Add(1)
	}
	s.listening.Store(listening)
	clear(s.hears)
	all := make(map[string][]*listener, len(s.listeners))
	for cache, some := range s.listeners {
		if listening && !s.sub.Stands(s.channelOf(cache)) {
			continue
		}
		if listening {
			s.hears[cache] = true
		}
		all[cache] = some
	}
	s.mu.Unlock()
	for cache, some := range all {
		m := cacheguard.Message{Kind: cacheguard.MessageLost}
		if listening {
			m = s.restoredFrom(since[cache])
		}
		for _, l := range some {
			l.hear(m)
		}
	}
}
