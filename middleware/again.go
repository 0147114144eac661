package middleware

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// A handler may fail because of what its own client has sent. So that nobody can hand out errors,
// those who waited for it have one more try: one of them runs the handler, and the others wait for
// that. What comes of it is for all of them; so a failing origin has one request at a time for each
// resource all the same, and each burst costs it one run more (in a fleet one more for each process
// at most, if the handler fails faster than processes hear of each other).

// lastError is the error of a second try, or one that no other try would change: who waited for it
// gets it.
type lastError struct{ error }

func (e lastError) Unwrap() error { return e.error }

// lastWord ends the text of such an error, for other processes.
const lastWord = "; last"

// triesAgain reports whether a request that waited for a handler which failed has another try, and
// takes it.
func (x *exchange) triesAgain(err error) bool {
	if x.again || x.ran || x.answered || x.confirmed != nil || x.r.Context().Err() != nil || isLast(err) || !isHandlers(err) {
		return false
	}
	var failed *statusError
	if errors.As(err, &failed) && (x.contentWith(failed) || failed.isFor(x)) {
		return false
	}
	x.again = x.cache.lastTries.failedSince(x.level, x.came) == nil
	return x.again
}

// isLast reports whether another try would change nothing, or take too long.
func isLast(err error) bool {
	var last lastError
	var there *cacheguard.LoadError
	return errors.As(err, &last) || errors.As(err, &there) && strings.HasSuffix(there.Text, lastWord) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// isHandlers reports whether an error is that of a handler.
func isHandlers(err error) bool {
	var failed *statusError
	var panicked *cacheguard.PanicError
	var there *cacheguard.LoadError
	return errors.As(err, &failed) || errors.As(err, &panicked) || errors.As(err, &there) || errors.Is(err, errIncomplete) ||
		errors.Is(err, errPanicked)
}

// lastTries are the second tries that have failed in this process lately. Of a thousand that waited
// for a run some look again only after the second one has failed, too: they must not begin a third.
// It is safe for concurrent use.
type lastTries struct {
	mu     sync.Mutex // guards what follows
	digest digester
	failed map[digest]lastTry
	order  []digest // a ring
	next   int      // the oldest
}

type lastTry struct {
	at  time.Time
	err error
}

// mostLastTries are remembered. Who looks for one that isn't any more runs the handler.
const mostLastTries = 1024

func (s *lastTries) fail(level string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = make(map[digest]lastTry)
	}
	key := s.digest.of(level)
	if _, has := s.failed[key]; !has {
		if len(s.order) < mostLastTries {
			s.order = append(s.order, key)
		} else {
			delete(s.failed, s.order[s.next])
			s.order[s.next] = key
			s.next = (s.next + 1) % mostLastTries
		}
	}
	s.failed[key] = lastTry{time.Now(), err}
}

// failedSince returns the error of a second try that has failed since then, or nil.
func (s *lastTries) failedSince(level string, then time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.failed) == 0 {
		return nil
	}
	if last, ok := s.failed[s.digest.of(level)]; ok && !last.at.Before(then) {
		return last.err
	}
	return nil
}
