package report_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/cacheguard/cacheguard/internal/report"
)

// said is an error that knows its server and its cause.
type said struct{ error }

func (said) Where() (server, cause string) { return "10.0.0.1:6379", "connection refused" }

// What others have put around an error may name a key. What is at the bottom says why, and no key.
func TestNoLineHasAKey(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		err  error
		want string
	}{
		{io.EOF, "EOF"},
		{fmt.Errorf("lock %q: %w", "a-key", io.EOF), "EOF"},
		{
			fmt.Errorf("%q: %w", "a-key",
				errors.Join(io.EOF, fmt.Errorf("a-key: %w", io.ErrNoProgress), io.EOF)),
			"EOF; " + io.ErrNoProgress.Error(),
		},
		{fmt.Errorf("%q: %w, %w", "a-key", io.EOF, dial), "EOF; " + dial.Error()},
		{
			fmt.Errorf("a-key: %w", said{errors.New("10.0.0.1:6379: connection refused")}),
			"10.0.0.1:6379: connection refused",
		},
	} {
		if got := report.Text(c.err); got != c.want {
			t.Errorf("of %q the log has %q; want %q", c.err, got, c.want)
		}
	}
}

func TestLine(t *testing.T) {
	var text bytes.Buffer
	to := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{AddSource: true}))
	line := report.Line{
		Level: slog.LevelWarn, Text: "here: it rains", Means: "people get wet", See: "weather",
	}
	line.Log(t.Context(), to, "cache", "c", "error", fmt.Errorf("a-key: %w", said{io.EOF}))
	for _, want := range []string{
		"level=WARN", "report_test.go", `msg="here: it rains"`, "cache=c server=10.0.0.1:6379",
		`cause="connection refused" error=EOF`,
		`means="people get wet" see=docs/operations.md#weather`,
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in %s", want, &text)
		}
	}
	if strings.Contains(text.String(), "a-key") {
		t.Errorf("the line has a key: %s", &text)
	}
	text.Reset()
	line.Level = slog.LevelDebug
	if line.Log(t.Context(), to); text.Len() > 0 {
		t.Errorf("logged below its level: %s", &text)
	}
}
