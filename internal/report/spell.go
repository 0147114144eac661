package report

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Spell is a time of trouble as the log tells it: one line says that it has begun, and one that it
// is over. Of trouble that comes and goes only the first few times in a minute are told. Its
// methods may be called by any number of goroutines; the zero value is a time without trouble.
type Spell struct {
	told atomic.Bool

	mu   sync.Mutex // guards what follows
	from time.Time
	n    int // times since then
}

const (
	mostSpells = 3
	spellsIn   = time.Minute
)

// Begin has the log say that there is trouble, unless it was told, or told too often lately: it is
// called again as long as there is.
func (s *Spell) Begin(ctx context.Context, line Line, to *slog.Logger, args ...any) {
	if !s.told.Load() && s.begins(time.Now()) {
		line.log(ctx, to, args)
	}
}

func (s *Spell) begins(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told.Load() {
		return false
	}
	if now.Sub(s.from) >= spellsIn {
		s.from, s.n = now, 0
	}
	if s.n++; s.n > mostSpells {
		return false
	}
	s.told.Store(true)
	return true
}

// Told reports whether the log was told of trouble, and not of its end.
func (s *Spell) Told() bool { return s.told.Load() }

// End has the log say that the trouble is over, if it was told.
func (s *Spell) End(ctx context.Context, line Line, to *slog.Logger, args ...any) {
	if s.told.Load() && s.told.CompareAndSwap(true, false) {
		line.log(ctx, to, args)
	}
}
