package report

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Spell is a time of trouble as the log tells it: one line says that it has begun, and one that it
// is over. Trouble that lasts is told again every few minutes, so that a new file of the log has
// it. Of trouble that comes and goes only the first few times in a minute are told. Its methods may
// be called by any number of goroutines; the zero value is a time without trouble.
type Spell struct {
	next atomic.Int64 // when it is to be told again, in Unix nanoseconds; 0: it isn't told

	mu    sync.Mutex // guards what follows
	since time.Time  // when it was told first
	from  time.Time
	n     int // times since then
}

const (
	mostSpells = 3
	spellsIn   = time.Minute
	again      = 5 * time.Minute
)

// Begin has the log say that there is trouble, unless it was told, or told too often lately: it is
// called again as long as there is. What is told again says since when.
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

// Due reports whether Begin may have something to say.
func (s *Spell) Due() bool {
	next := s.next.Load()
	return next == 0 || time.Now().UnixNano() >= next
}

// begins reports whether the log is to be told, and if not for the first time since when.
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

// Told reports whether the log was told of trouble, and not of its end.
func (s *Spell) Told() bool { return s.next.Load() != 0 }

// End has the log say that the trouble is over, if it was told.
func (s *Spell) End(ctx context.Context, line Line, to *slog.Logger, args ...any) {
	if s.Told() && s.next.Swap(0) != 0 {
		line.log(ctx, to, args)
	}
}
