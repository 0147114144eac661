package childproc

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/internal/childproc/kittest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

func TestServerStartsAndStops(t *testing.T) {
	s := start(t)
	wantAnswer(t, s)
	kittest.StopsForGood(t, s, ErrStopped)
}

func TestServerRestartsWhereItWas(t *testing.T) {
	s := start(t)
	kept := filepath.Join(s.Dir(), "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, revive := range []func() error{
		s.Restart,
		func() error { s.Kill(); return s.Restart() },
	} {
		kittest.Revives(t, s, revive)
		wantAnswer(t, s)
		if _, err := os.Stat(kept); err != nil {
			t.Error(err)
		}
	}
}

func TestKilledServerIsGone(t *testing.T) {
	s := start(t)
	s.Kill()
	kittest.IsGone(t, s)
	if s.Exit() == nil {
		t.Error("a killed server ended in order")
	}
}

func TestPausedServerIsSilentUntilResumed(t *testing.T) {
	s := start(t)
	var conn net.Conn
	kittest.SilentWhilePaused(t, s, func() {
		conn = dial(t, s) // the kernel accepts
		if answered(t, conn, moment) {
			t.Error("a paused server answers")
		}
	}, func() {
		if !heard(t, conn, waittest.Patience) {
			t.Error("a resumed server doesn't answer")
		}
	})
}

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	fails := echo()
	command := fails.Command
	fails.Command = func(dir string, port int) (*exec.Cmd, error) {
		cmd, err := command(dir, port)
		cmd.Env = append(cmd.Env, serverEnv+"=nowhere")
		return cmd, err
	}
	if _, err := New(fails); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("got %v, want what the server says", err)
	}
	fails.Command = func(string, int) (*exec.Cmd, error) { return nil, os.ErrInvalid }
	if _, err := New(fails); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("got %v, want the command's error", err)
	}
	fails.Command = func(string, int) (*exec.Cmd, error) {
		return exec.Command(filepath.Join(temp, "none")), nil
	}
	if _, err := New(fails); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that there is no such program", err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("folders left: %v, %v", left, err)
	}
}

// While a server is dead, no other server gets its port.
func TestKilledServerKeepsItsPort(t *testing.T) {
	s := start(t)
	s.Kill()
	if p, err := reserve(s.Port()); err == nil {
		p.Release()
		t.Error("another server can have the port of a killed server")
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	p, err := reserve(s.Port())
	if err != nil {
		t.Fatal(err)
	}
	p.Release()
}

func TestRestartWaitsForItsPort(t *testing.T) {
	s := start(t)
	kittest.WaitsForItsPort(t, s, "somebody else")
	wantAnswer(t, s)
}
