package middleware

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// A handler may fail because of the fields that its own client has sent. No client should be able
// to cause errors for other clients. So the requests that waited for the failed run get one more
// try together: one of them runs the handler, and the others wait for this second run and get its
// result. So a failing origin still gets only one request at a time for each resource, and each
// burst costs the origin one more run. In a fleet, if the handler fails faster than processes learn
// of each other's failures, the burst costs at most one more run for each process.

// lastError is the error of a second try, or an error that another try would not change. The
// requests that waited get this error.
type lastError struct{ error }

func (e lastError) Unwrap() error { return e.error }

// lastWord ends the text that other processes get about an error after which the waiting requests
// should not try again: see isLast.
const lastWord = "; last"

// triesAgain reports whether a request gets another try after the failure of the handler that it
// waited for. If so, triesAgain records that the request has used this try.
func (x *exchange) triesAgain(err error) bool {
	if x.again || x.ran || x.answered || x.confirmed != nil || x.r.Context().Err() != nil ||
		isLast(err) || !isHandlers(err) {
		return false
	}
	var failed *statusError
	if errors.As(err, &failed) && (x.contentWith(failed) || failed.isFor(x)) {
		return false
	}
	x.again = x.cache.lastTries.failedSince(x.level, x.came) == nil
	return x.again
}

// isLast reports whether the request should not try again, because another try would not change the
// error or would take too long.
func isLast(err error) bool {
	var last lastError
	var there *cacheguard.LoadError
	return errors.As(err, &last) ||
		errors.As(err, &there) && strings.HasSuffix(there.Text, lastWord) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// isHandlers reports whether an error comes from a handler.
func isHandlers(err error) bool {
	var failed *statusError
	var panicked *cacheguard.PanicError
	var there *cacheguard.LoadError
	return errors.As(err, &failed) || errors.As(err, &panicked) || errors.As(err, &there) ||
		errors.Is(err, errIncomplete) ||
		errors.Is(err, errPanicked)
}

// lastTries records the second tries that have failed in this process lately. If a thousand
// requests wait for a run, some of them call the loader again only after the second run has failed,
// too. They must not start a third run. lastTries is safe for concurrent use.
type lastTries struct {
	mu     sync.Mutex // guards the fields below
	digest digester
	failed map[digest]lastTry
	order  []digest // a ring
	next   int      // the index of the oldest
}

type lastTry struct {
	at  time.Time
	err error
}

// mostLastTries is how many failed second tries are remembered. If a failed try has been forgotten,
// the next request that looks for it runs the handler.
const mostLastTries = 1024

// fail records that a second try has failed. The error, which may have a whole response, is kept
// for the time keep, which no request outlasts that waits for such a try.
func (s *lastTries) fail(level string, err error, keep time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = make(map[digest]lastTry)
		time.AfterFunc(keep, func() { s.forget(keep) })
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

// forget forgets the errors that are older than keep, and does so again until none is left.
func (s *lastTries) forget(keep time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, last := range s.failed {
		if time.Since(last.at) >= keep {
			delete(s.failed, key)
		}
	}
	byAge := slices.Concat(s.order[s.next:], s.order[:s.next])
	s.order = slices.DeleteFunc(byAge, func(key digest) bool {
		_, kept := s.failed[key]
		return !kept
	})
	s.next = 0
	if len(s.failed) == 0 {
		s.failed = nil
		return
	}
	time.AfterFunc(keep, func() { s.forget(keep) })
}

// failedSince returns the error of a second try that has failed at or after the time then. It
// returns nil if there is none.
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
