package logtest_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/internal/logtest"
	"github.com/cacheguard/cacheguard/internal/suitetest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

func TestWith(t *testing.T) {
	var l logtest.Lines
	l.Logger().Info("one", "n", 1)
	l.Logger().Warn("two", "n", 1)
	for words, want := range map[string]int{
		"": 2, "n=1": 2, "n=1 msg=two": 1, "two one": 0, "msg=one n=2": 0,
	} {
		if n := l.Count(strings.Fields(words)...); n != want {
			t.Errorf("%d lines with %q, want %d", n, words, want)
		}
	}
	if lines := l.With("two"); len(lines) != 1 || !strings.HasSuffix(l.String(), lines[0]) {
		t.Errorf("with two: %q", lines)
	}
}

// A wait ends with the line that it is for, whether the line comes before or during the wait.
func TestAwait(t *testing.T) {
	const writers, each = 8, 50
	var l logtest.Lines
	var writing, waiting sync.WaitGroup
	for w := range writers {
		waiting.Go(func() { l.AwaitSome(t, fmt.Sprintf("<%d %d>", w, each-1)) })
		waiting.Go(func() { l.Await(t, each, fmt.Sprintf("<%d ", w)) })
		writing.Go(func() {
			for n := range each {
				fmt.Fprintf(&l, "<%d %d>\n", w, n)
			}
		})
	}
	waiting.Wait()
	l.Await(t, writers*each)
	writing.Wait()
}

// A wait in vain fails its test: at once if there are too many lines, after a while if there are
// too few.
func TestAwaitInVain(t *testing.T) {
	for name, c := range map[string]struct {
		await func(l *logtest.Lines, tb waittest.TB)
		says  string
		takes time.Duration
	}{
		"too many": {
			func(l *logtest.Lines, tb waittest.TB) { l.Await(tb, 1, "line") }, "2 lines", 0,
		},
		"too few": {
			func(l *logtest.Lines, tb waittest.TB) {
				l.Await(tb, 3, "line")
			}, "not 3 lines", waittest.Patience,
		},
		"none": {
			func(l *logtest.Lines, tb waittest.TB) {
				l.AwaitSome(tb, "other")
			}, "not 1 lines", waittest.Patience,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l logtest.Lines
				_, _ = io.WriteString(&l, "line 1\nline 2\n")
				began := time.Now()
				r := suitetest.Record(func(r *suitetest.Recorder) { c.await(&l, r) })
				if took := time.Since(began); len(r.Failures) != 1 ||
					!strings.Contains(r.Failures[0], c.says) || took != c.takes {
					t.Errorf("after %v: %q; want %q after %v", took, r.Failures, c.says, c.takes)
				}
				if len(r.Failures) == 1 && !strings.Contains(r.Failures[0], "line 2") {
					t.Errorf("%q doesn't have the log", r.Failures)
				}
			})
		})
	}
}
