package redislink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// session is one connection of a subscription. Its subscribe commands follow the wanted channels.
// Its confirmed channels follow the server's answers.
type session struct {
	sub    *Subscription
	ps     *redis.PubSub
	asked  map[string]struct{} // channels and the pattern that were subscribed to
	stands map[string]struct{} // channels and the pattern that the server has confirmed
	// Channels that the server was told to leave and has not yet confirmed.
	left map[string]struct{}

	keepsUp bool           // a goroutine sends changes
	keeping sync.WaitGroup // waits for the end of this goroutine
}

// errAgain means that the client has subscribed again by itself. Messages may have been lost, so
// the session treats this as a break.
var errAgain = errors.New("the connection was made anew")

var errSilent = errors.New("no answer to a PING")

// listen subscribes and delivers messages until the connection is lost or silent.
func (sub *Subscription) listen(
	ctx context.Context, rdb redis.UniversalClient, standing func(),
) error {
	ps := rdb.Subscribe(ctx) // no channel yet: this doesn't dial
	defer ps.Close()
	// A read from the socket doesn't see the context, so the end of ctx closes ps.
	defer context.AfterFunc(ctx, func() { _ = ps.Close() })()
	s := &session{
		sub: sub, ps: ps, stands: make(map[string]struct{}), left: make(map[string]struct{}),
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
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
				return fmt.Errorf("%w within %v", errSilent, silence)
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
			if err := s.confirmed(ctx, got, standing); err != nil {
				return err
			}
		case *redis.Message:
			sub.ear.Heard(got.Payload)
		}
		if sub.ear.NowAndThen != nil {
			sub.ear.NowAndThen(ctx)
		}
	}
}

// begin subscribes to all wanted channels and the pattern, without waiting for the confirmations.
func (s *session) begin(ctx context.Context) error {
	s.sub.mu.Lock()
	s.asked = maps.Clone(s.sub.wanted)
	s.sub.mu.Unlock()
	channels := slices.Collect(maps.Keys(s.asked))
	if len(channels) > 0 {
		if err := s.ps.Subscribe(ctx, channels...); err != nil {
			return err
		}
	}
	if s.sub.pattern == "" {
		return nil
	}
	s.asked[s.sub.pattern] = struct{}{}
	return s.ps.PSubscribe(ctx, s.sub.pattern)
}

// confirmed handles a confirmation from the server. After the last confirmation of the first
// subscriptions, no later message is missed. Messages that were published before may have been
// missed.
func (s *session) confirmed(ctx context.Context, got *redis.Subscription, standing func()) error {
	sub := s.sub
	sub.mu.Lock()
	if got.Kind == "unsubscribe" {
		delete(s.left, got.Channel)
		s.follow() // the channel may be wanted again
		sub.mu.Unlock()
		return nil
	}
	if _, already := s.stands[got.Channel]; already {
		sub.mu.Unlock()
		return errAgain
	}
	_, asked := s.asked[got.Channel]
	if asked { // otherwise the channel is no longer wanted
		s.stands[got.Channel] = struct{}{}
	}
	first := sub.at == nil
	all := first && len(s.stands) == len(s.asked)
	if all {
		sub.at = s
		s.follow() // more channels may have been added since
	}
	sub.mu.Unlock()
	switch {
	case all:
		standing()
		sub.ear.Restored(ctx)
		sub.confirm()
	case !first && asked && sub.ear.Joined != nil:
		sub.ear.Joined(ctx, got.Channel)
	}
	return nil
}

func (s *session) end() {
	s.sub.mu.Lock()
	if s.sub.at == s {
		s.sub.at = nil
	}
	s.sub.mu.Unlock()
	_ = s.ps.Close()
	s.keeping.Wait()
}

// Join adds a channel, and reports whether its messages already arrive. If not, Ear.Restored or
// Ear.Joined is called when they begin to arrive.
func (sub *Subscription) Join(channel string) bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.wanted[channel] = struct{}{}
	if sub.at == nil {
		return false
	}
	sub.at.follow()
	_, stands := sub.at.stands[channel]
	return stands
}

// Leave removes a channel. Some of its messages may still arrive.
func (sub *Subscription) Leave(channel string) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	delete(sub.wanted, channel)
	if sub.at != nil {
		sub.at.follow()
	}
}

// Stands reports whether the messages of a channel arrive.
func (sub *Subscription) Stands(channel string) bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.at == nil {
		return false
	}
	_, stands := sub.at.stands[channel]
	return stands
}

// follow starts a goroutine that tells the server which channels are wanted, unless one is running.
// The caller holds sub.mu.
func (s *session) follow() {
	if !s.keepsUp {
		s.keepsUp = true
		s.keeping.Go(s.keepUp)
	}
}

func (s *session) keepUp() {
	for {
		join, leave := s.difference()
		var err error
		switch { // without a name Unsubscribe leaves all channels
		case len(join) > 0:
			err = s.ps.Subscribe(context.Background(), join...)
		case len(leave) > 0:
			err = s.ps.Unsubscribe(context.Background(), leave...)
		default:
			return
		}
		if err != nil {
			_ = s.ps.Close() // which ends the session
			return
		}
	}
}

// difference returns the channels to join and to leave next, and records them as told.
func (s *session) difference() (join, leave []string) {
	s.sub.mu.Lock()
	defer s.sub.mu.Unlock()
	if s.sub.at == s {
		for channel := range s.asked {
			if _, wanted := s.sub.wanted[channel]; !wanted && channel != s.sub.pattern {
				leave = append(leave, channel)
			}
		}
		for _, channel := range leave {
			delete(s.asked, channel)
			delete(s.stands, channel)
			s.left[channel] = struct{}{}
		}
		if len(leave) > 0 {
			return nil, leave
		}
		for channel := range s.sub.wanted {
			_, asked := s.asked[channel]
			// Otherwise the confirmation of the old subscription could be taken for the
			// confirmation of the new one.
			if _, left := s.left[channel]; !asked && !left {
				join = append(join, channel)
				s.asked[channel] = struct{}{}
			}
		}
	}
	s.keepsUp = len(join) > 0
	return join, nil
}
