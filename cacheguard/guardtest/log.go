package guardtest

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
)

// testLog writes to a test's log as long as that is allowed, which it is not when the test is over:
// a load that outlives its cache could still have something said then.
type testLog struct {
	tb testing.TB

	mu   sync.Mutex // guards over; held while logging, so that no line is under way when the test ends
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

// stubbornLoad is how Close says that there is a load which it could not end. Nothing else tells:
// such a load shows itself, as an event, only once it returns.
const stubbornLoad = "cacheguard: closed while a load that ignores its context still runs"

// ear is what a listening handler has heard.
type ear struct{ stubborn atomic.Bool }

// listening is a handler that hears what passes through it.
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
