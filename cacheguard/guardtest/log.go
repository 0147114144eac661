package guardtest

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
)

// testLog writes to a test's log until the test ends. After the end of the test no goroutine may
// write to this log, but a load that outlives its cache could still log a line.
type testLog struct {
	tb testing.TB

	// Guards over; held while logging, so that no line is being written when the test ends.
	mu   sync.Mutex
	over bool
}

func (l *testLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.tb.Logf("%s", bytes.TrimSpace(line))
	}
	return len(line), nil
}

func (l *testLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}

// stubbornLoad is the log line of Close for a load that it could not end. It is the only sign of
// such a load, because the load sends an event only when it returns.
const stubbornLoad = "cacheguard: closed while a load that ignores its context still runs"

// ear records what a listening handler has received.
type ear struct{ stubborn atomic.Bool }

// listening is a handler that also looks for stubbornLoad among its records.
type listening struct {
	slog.Handler
	ear *ear
}

func (h listening) Enabled(context.Context, slog.Level) bool { return true }

func (h listening) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == stubbornLoad {
		h.ear.stubborn.Store(true)
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h listening) WithAttrs(attrs []slog.Attr) slog.Handler {
	return listening{h.Handler.WithAttrs(attrs), h.ear}
}

func (h listening) WithGroup(name string) slog.Handler {
	return listening{h.Handler.WithGroup(name), h.ear}
}
