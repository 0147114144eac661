package lockstore

import (
	"context"
	"log/slog"
	"time"

	"github.com/cacheguard/cacheguard/internal/report"
)

var (
	noLocksLine = report.Line{Level: slog.LevelWarn, Text: "lockstore: locks can't be had",
		See:   "locks-cant-be-had",
		Means: "loads only need a lease of the store; if the store loses leases meanwhile, some keys are loaded twice"}
	locksLine = report.Line{
		Level: slog.LevelInfo, Text: "lockstore: locks can be had again", See: "locks-cant-be-had",
	}
)

// usable reports whether the locker may be used now.
func (s *Store) usable() bool { return int64(time.Since(s.began)) >= s.resumes.Load() }

// trouble records that the locker could not be used. For a while loads need only the store's
// leases.
func (s *Store) trouble(err error) {
	s.resumes.Store(int64(time.Since(s.began) + truce))
	s.spell.Begin(context.Background(), noLocksLine, s.opts.Logger, "error", err)
}

func (s *Store) recovered() { s.spell.End(context.Background(), locksLine, s.opts.Logger) }
