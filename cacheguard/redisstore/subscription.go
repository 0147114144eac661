package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redislink"
)

// subscribe starts the subscription if it is not there yet, and doesn't wait for it.
func (s *Store) subscribe() (*redislink.Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, errClosed
	}
	if s.sub == nil {
		e := &ear{s: s}
		s.sub = s.link.Subscribe(s.names.channel(), redislink.Ear{
			Restored: e.restored, Heard: s.deliver, Lost: e.lost, NowAndThen: e.nowAndThen,
		})
	}
	return s.sub, nil
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

// ear hears what the subscription tells. Its methods are called one after another.
type ear struct {
	s    *Store
	said bool // that messages don't arrive
}

func (e *ear) restored(ctx context.Context) {
	s := e.s
	clock, err := s.remeasure(ctx)
	if e.said {
		s.opts.Logger.Info("redisstore: messages arrive again", "process", s.name)
		e.said = false
	}
	s.tellAll(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: s.unheard(clock, err)}, true)
}

func (e *ear) lost(err error) {
	s := e.s
	if s.listening.Load() {
		s.tellAll(cacheguard.Message{Kind: cacheguard.MessageLost}, false)
	}
	if !e.said && !errors.Is(err, context.Canceled) { // once for each break; Close is none
		s.opts.Logger.Warn("redisstore: messages don't arrive; waiting callers ask from time to time", "process", s.name, "error", err)
		e.said = true
	}
}

func (e *ear) nowAndThen(ctx context.Context) {
	if e.s.clock.due() {
		_, _ = e.s.remeasure(ctx)
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
		tell(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: s.latest()})
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
		s.cluster.heard(cache, m.Tags, m.Generation, s.latest())
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
