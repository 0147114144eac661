package report

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Spell decides which lines about a problem are logged. One line reports the beginning of the
// problem, and one line reports its end. A problem that lasts is logged again every few minutes, so
// that a new log file also has it. If a problem comes and goes, only the first few times in a
// minute are logged. A Spell is safe for concurrent use. The zero value is ready to use.
type Spell struct {
	// When the problem must be logged again, in Unix nanoseconds; 1: at once; 0: there is no logged
	// problem.
	next atomic.Int64

	mu    sync.Mutex // guards the fields below
	since time.Time  // when the problem was first logged
	from  time.Time  // when the minute began in which beginnings are counted
	n     int        // the number of beginnings since from
}

const (
	mostSpells = 3
	spellsIn   = time.Minute
	again      = 5 * time.Minute
)

// Begin logs that there is a problem, unless the problem was already logged or was logged too often
// lately. Call Begin repeatedly as long as the problem lasts. A repeated line has the time when the
// problem began.
func (s *Spell) Begin(ctx context.Context, line Line, to *slog.Logger, args ...any) {
	if !s.Due() {
		return
	}
	switch tell, since := s.begins(time.Now()); {
	case tell && since.IsZero():
		line.log(ctx, to, args)
	case tell:
		line.log(ctx, to, append(args[:len(args):len(args)], "since", since.Round(0)))
	}
}

// Due reports whether Begin may have something to log.
func (s *Spell) Due() bool {
	next := s.next.Load()
	return next == 0 || time.Now().UnixNano() >= next
}

// begins reports whether to log the problem. If the problem was logged before, begins also returns
// the time when it began.
func (s *Spell) begins(now time.Time) (tell bool, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next := s.next.Load(); next != 0 {
		if now.UnixNano() < next || !s.next.CompareAndSwap(next, now.Add(again).UnixNano()) {
			return false, since
		}
		return true, s.since
	}
	if now.Sub(s.from) >= spellsIn {
		s.from, s.n = now, 0
	}
	if s.n++; s.n > mostSpells {
		return false, since
	}
	s.since = now
	s.next.Store(now.Add(again).UnixNano())
	return true, since
}

// Anew makes Begin log the problem once more, because what is known about it has changed. If the
// problem was logged often enough in this minute, Anew does nothing.
func (s *Spell) Anew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.from) >= spellsIn {
		s.from, s.n = now, 0
	}
	if next := s.next.Load(); next != 0 && s.n < mostSpells &&
		s.next.CompareAndSwap(next, 1) {
		s.n++
	}
}

// Told reports whether the problem was logged and its end was not logged yet.
func (s *Spell) Told() bool { return s.next.Load() != 0 }

// End logs that the problem is over, if the problem was logged.
func (s *Spell) End(ctx context.Context, line Line, to *slog.Logger, args ...any) {
	if s.Told() && s.next.Swap(0) != 0 {
		line.log(ctx, to, args)
	}
}
