package childproc

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestServerStartsAndStops(t *testing.T) {
	s := start(t)
	wantAnswer(t, s)
	if s.Pid() == 0 {
		t.Error("a running server has no pid")
	}
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if s.Pid() != 0 {
		t.Error("a stopped server has a pid")
	}
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Errorf("its folder is left: %v", err)
	}
	if err := s.Exit(); err != nil {
		t.Errorf("it was killed, not asked: %v", err)
	}
	if err := s.Restart(); !errors.Is(err, ErrStopped) {
		t.Errorf("Restart after Stop: %v", err)
	}
	s.Kill() // of a stopped one: nothing
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
		addr, pid := s.Addr(), s.Pid()
		if err := revive(); err != nil {
			t.Fatal(err)
		}
		if s.Addr() != addr || s.Pid() == pid {
			t.Errorf("addr %s, pid %d; were %s, %d", s.Addr(), s.Pid(), addr, pid)
		}
		wantAnswer(t, s)
		if _, err := os.Stat(kept); err != nil {
			t.Error(err)
		}
	}
}

func TestKilledServerIsGone(t *testing.T) {
	s := start(t)
	s.Kill()
	if s.Pid() != 0 {
		t.Error("a killed server has a pid")
	}
	if _, err := net.Dial("tcp", s.Addr()); err == nil {
		t.Error("a killed server accepts")
	}
	if s.Pause() == nil || s.Resume() == nil {
		t.Error("a killed server can be paused or resumed")
	}
	if s.Exit() == nil {
		t.Error("a killed server ended in order")
	}
}

func TestPausedServerIsSilentUntilResumed(t *testing.T) {
	s := start(t)
	if err := s.Pause(); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no SIGSTOP on " + runtime.GOOS)
	} else if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, s) // the kernel accepts
	if answered(t, conn, moment) {
		t.Error("a paused server answers")
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if !heard(t, conn, patience) {
		t.Error("a resumed server doesn't answer")
	}

	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(); err != nil {
		t.Fatalf("Restart of a paused server: %v", err)
	}
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatalf("Stop of a paused server: %v", err)
	}
	if err := s.Exit(); err != nil {
		t.Errorf("it was killed, not asked: %v", err)
	}
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
	fails.Command = func(string, int) (*exec.Cmd, error) { return exec.Command(filepath.Join(temp, "none")), nil }
	if _, err := New(fails); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that there is no such program", err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("folders left: %v, %v", left, err)
	}
}

// While a server is down another program may get its port; a restart waits
// for it.
func TestRestartWaitsForItsPort(t *testing.T) {
	s := start(t)
	s.Kill()
	squatter, err := net.Listen("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	restarted := make(chan error, 1)
	go func() { restarted <- s.Restart() }()
	eventually(t, "a try to bind", func() bool { return s.Logged("somebody else") })
	if err := squatter.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, s)
}
