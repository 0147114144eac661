package report_test

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/internal/report"
)

// However often trouble comes and goes, the log has a few lines of it in a minute, each beginning
// has its end, and trouble that stays is told in the end.
func TestSpell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		to := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{AddSource: true}))
		begins, ends := report.Line{Text: "here: it rains"}, report.Line{Text: "here: it is dry"}
		var s report.Spell
		s.End(t.Context(), ends, to)
		if text.Len() > 0 {
			t.Errorf("without trouble: %s", &text)
		}
		for range 100 {
			for range 2 {
				s.Begin(t.Context(), begins, to)
			}
			for range 2 {
				s.End(t.Context(), ends, to)
			}
		}
		if all := text.String(); strings.Count(all, "it rains") != 3 ||
			strings.Count(all, "it is dry") != 3 || !strings.Contains(all, "spell_test.go") {
			t.Errorf("a hundred times were told as %s", all)
		}
		text.Reset()
		s.Begin(t.Context(), begins, to)
		time.Sleep(time.Minute)
		if text.Len() > 0 {
			t.Errorf("too often: %s", &text)
		}
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { s.Begin(t.Context(), begins, to) })
		}
		all.Wait()
		s.End(t.Context(), ends, to)
		if all := text.String(); strings.Count(all, "it rains") != 1 ||
			strings.Count(all, "it is dry") != 1 {
			t.Errorf("trouble that stays was told as %s", all)
		}
	})
}

// Trouble that lasts is told again every five minutes, with its beginning, at the next failure; its
// end is told once, and what comes after that has a beginning of its own.
func TestSpellThatLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		to := slog.New(slog.NewTextHandler(&text, nil))
		begins, ends := report.Line{Text: "here: it rains"}, report.Line{Text: "here: it is dry"}
		var s report.Spell
		began := "since=" + time.Now().Format("2006-01-02T15:04:05.000Z07:00")
		for range 60 * 60 {
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() { s.Begin(t.Context(), begins, to, "error", io.EOF) })
			}
			all.Wait()
			time.Sleep(time.Second)
		}
		if all := text.String(); strings.Count(all, "it rains") != 12 ||
			strings.Count(all, began) != 11 {
			t.Errorf("an hour was told as %s", all)
		}
		time.Sleep(time.Hour) // nobody asks, nothing is told
		if n := strings.Count(text.String(), "\n"); n != 12 {
			t.Errorf("%d lines", n)
		}
		text.Reset()
		for range 2 {
			s.End(t.Context(), ends, to)
		}
		if s.Begin(t.Context(), begins, to); strings.Count(text.String(), "\n") != 2 ||
			strings.Contains(text.String(), "since=") {
			t.Errorf("the end and the next beginning were told as %s", &text)
		}
	})
}

// What is known of a trouble may change while it lasts. It is told then, too, but not more often
// than trouble that comes and goes.
func TestSpellAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		to := slog.New(slog.NewTextHandler(&text, nil))
		begins, ends := report.Line{Text: "here: it rains"}, report.Line{Text: "here: it is dry"}
		var s report.Spell
		if s.Anew(); s.Told() {
			t.Error("there is no trouble, and it is told")
		}
		for range 10 {
			s.Anew()
			s.Begin(t.Context(), begins, to)
		}
		s.End(t.Context(), ends, to)
		if all := text.String(); strings.Count(all, "it rains") != 3 ||
			strings.Count(all, "since=") != 2 || strings.Count(all, "it is dry") != 1 {
			t.Errorf("it was told as %s", all)
		}
	})
}
