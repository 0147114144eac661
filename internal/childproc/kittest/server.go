package kittest

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/internal/waittest"
)

// Server has the methods of childproc.Server. It is an interface, because the tests of childproc
// import this package.
type Server interface {
	Addr() string
	Dir() string
	Pid() int
	Kill()
	Restart() error
	Pause() error
	Resume() error
	Stop() error
	Exit() error
	Logged(words string) bool
}

// StopsForGood tests that a server stops for good. stopped is the error of a Restart after Stop.
func StopsForGood(t *testing.T, s Server, stopped error) {
	t.Helper()
	if s.Pid() == 0 {
		t.Error("a running server has no pid")
	}
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	IsGone(t, s)
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Errorf("its folder is left: %v", err)
	}
	if err := s.Exit(); err != nil {
		t.Errorf("it was killed, not asked: %v", err)
	}
	if err := s.Restart(); !errors.Is(err, stopped) {
		t.Errorf("Restart after Stop: %v", err)
	}
	s.Kill() // does nothing to a stopped server
}

// IsGone tests that a server that was killed or stopped has ended.
func IsGone(t *testing.T, s Server) {
	t.Helper()
	if s.Pid() != 0 {
		t.Error("a server that is gone has a pid")
	}
	if _, err := net.Dial("tcp", s.Addr()); err == nil {
		t.Error("a server that is gone accepts")
	}
	if s.Pause() == nil || s.Resume() == nil {
		t.Error("a server that is gone can be paused or resumed")
	}
}

// Revives tests that revive brings a server back as another process at the same address.
func Revives(t *testing.T, s Server, revive func() error) {
	t.Helper()
	addr, pid := s.Addr(), s.Pid()
	if err := revive(); err != nil {
		t.Fatal(err)
	}
	if s.Addr() != addr || s.Pid() == pid {
		t.Errorf("addr %s, pid %d; were %s, %d", s.Addr(), s.Pid(), addr, pid)
	}
}

// SilentWhilePaused pauses and resumes a server. It calls paused while the server stands still, and
// resumed when the server goes on. At the end it stops the server while it is paused.
func SilentWhilePaused(t *testing.T, s Server, paused, resumed func()) {
	t.Helper()
	if err := s.Pause(); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("a server can't be paused on " + runtime.GOOS)
	} else if err != nil {
		t.Fatal(err)
	}
	paused()
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	resumed()
	for _, end := range []func() error{s.Restart, s.Stop} {
		if err := s.Pause(); err != nil {
			t.Fatal(err)
		}
		if err := end(); err != nil {
			t.Fatalf("the end of a paused server: %v", err)
		}
	}
	if err := s.Exit(); err != nil {
		t.Errorf("it was killed, not asked: %v", err)
	}
}

// WaitsForItsPort restarts a server while another program has its port. words are the words that
// the server logs in this case.
func WaitsForItsPort(t *testing.T, s Server, words string) {
	t.Helper()
	s.Kill()
	squatter, err := net.Listen("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	restarted := make(chan error, 1)
	go func() { restarted <- s.Restart() }()
	waittest.Until(t, "a try to bind", func() bool { return s.Logged(words) })
	if err := squatter.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
}

// DiesWithItsParent runs this test binary with env added to its environment. With env the binary is
// a program that starts a server, prints the server's address, and waits. Then DiesWithItsParent
// kills the program and tests that the server ends. It returns the server's address.
func DiesWithItsParent(t *testing.T, answers func(addr string) bool, env ...string) (addr string) {
	t.Helper()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), env...)
	if _, err := parent.StdinPipe(); err != nil { // an open pipe keeps the program waiting
		t.Fatal(err)
	}
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr = strings.TrimSpace(line)
	if !answers(addr) {
		t.Errorf("no server at %s", addr)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // "signal: killed"
	waittest.Until(t, "the end of the server", func() bool { return !answers(addr) })
	return addr
}
