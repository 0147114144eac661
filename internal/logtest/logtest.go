// Package logtest keeps the lines of a log for tests.
package logtest

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/internal/waittest"
)

// Lines has the lines that were written to it. The zero Lines is ready to use and safe for
// concurrent use.
type Lines struct {
	mu   sync.Mutex // guards the fields below
	text strings.Builder
	news chan struct{} // closed by the next Write; nil if nobody waits for it
}

// Logger returns a logger that writes text to l.
func (l *Lines) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.news != nil {
		close(l.news)
		l.news = nil
	}
	return l.text.Write(p)
}

// String returns the whole log.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// With returns the lines that contain all of these words.
func (l *Lines) With(words ...string) []string {
	return slices.DeleteFunc(slices.Collect(strings.Lines(l.String())), func(line string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
	})
}

// Count returns the number of lines that contain all of these words.
func (l *Lines) Count(words ...string) int { return len(l.With(words...)) }

// Await waits until n lines contain all of these words. The test fails if there are more, or if
// they don't come within waittest.Patience.
func (l *Lines) Await(tb waittest.TB, n int, words ...string) {
	tb.Helper()
	if got := l.await(tb, n, words); got > n {
		tb.Fatalf("%d lines with %q, want %d:\n%s", got, words, n, l)
	}
}

// AwaitSome waits until one line or more contain all of these words. The test fails if none comes
// within waittest.Patience.
func (l *Lines) AwaitSome(tb waittest.TB, words ...string) {
	tb.Helper()
	l.await(tb, 1, words)
}

func (l *Lines) await(tb waittest.TB, least int, words []string) int {
	tb.Helper()
	limit := time.After(waittest.Patience)
	for {
		news := l.next() // before the look, so that no line is missed between the two
		if n := l.Count(words...); n >= least {
			return n
		}
		select {
		case <-news:
		case <-limit:
			tb.Fatalf("within %v there were not %d lines with %q:\n%s", waittest.Patience, least,
				words, l)
			return least
		}
	}
}

// next returns a channel that the next Write closes.
func (l *Lines) next() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.news == nil {
		l.news = make(chan struct{})
	}
	return l.news
}
