package pgtest

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

func TestServerStartsAndStops(t *testing.T) {
	s := Start(t, "work_mem=1234kB")
	db := connect(t, s.Addr())
	var setting string
	if err := db.QueryRow("SHOW work_mem").Scan(&setting); err != nil || setting != "1234kB" {
		t.Errorf("work_mem is %q, %v", setting, err)
	}
	dir := s.Dir()
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its folder is left: %v", err)
	}
	if _, err := net.Dial("tcp", s.Addr()); err == nil {
		t.Error("a stopped server accepts")
	}
	if err := s.Restart(); !errors.Is(err, childproc.ErrStopped) {
		t.Errorf("Restart after Stop: %v", err)
	}
	s.Kill()
	if s.Pause() == nil || s.Resume() == nil {
		t.Error("a stopped server can be paused or resumed")
	}
}

func TestServerIsKilledAndRemembers(t *testing.T) {
	s := Start(t)
	db := connect(t, s.Addr())
	do(t, db, "CREATE TABLE things (n int)", "INSERT INTO things VALUES (1)")
	family := children(s.Pid())
	addr, pid := s.Addr(), s.Pid()
	s.Kill()
	if s.Pid() != 0 {
		t.Error("a killed server has a pid")
	}
	for _, child := range family {
		if alive(child) {
			t.Errorf("process %d of the killed server lives", child)
		}
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if s.Addr() != addr || s.Pid() == pid {
		t.Errorf("addr %s, pid %d; were %s, %d", s.Addr(), s.Pid(), addr, pid)
	}
	if n := one(t, connect(t, addr), "SELECT count(*) FROM things"); n != 1 {
		t.Errorf("after the restart there are %d things", n)
	}
}

func TestPausedServerIsSilentUntilResumed(t *testing.T) {
	s := Start(t)
	db := connect(t, s.Addr())
	do(t, db, "CREATE TABLE things (n int)")
	if err := s.Pause(); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("it can't be paused here")
	} else if err != nil {
		t.Fatal(err)
	}
	// The process of this connection stands still as well, not only the one that accepts.
	if _, err := db.ExecContext(within(t, moment), "INSERT INTO things VALUES (1)"); err == nil {
		t.Error("a paused server does things")
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	do(t, db, "INSERT INTO things VALUES (2)")

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
	Shared(t) // skips where there is no server at all
	_, err := NewServer("no_such_setting=1")
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("got %v, want what it says of the setting", err)
	}
}

func TestNoServerHere(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := NewServer(); !errors.Is(err, ErrNoServer) {
		t.Errorf("got %v, want ErrNoServer", err)
	}
}

func TestSharedServerIsOne(t *testing.T) {
	if a, b := Shared(t), Shared(t); a != b {
		t.Error("there are two")
	}
}

func TestServerDiesWithItsParent(t *testing.T) {
	Shared(t) // skips where there is no server
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), childEnv+"=1")
	if _, err := parent.StdinPipe(); err != nil { // keeps it waiting
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
	addr := strings.TrimSpace(line)
	if !answers(addr) {
		t.Errorf("no server at %s", addr)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // "signal: killed"
	if err := eventually(func() bool { return !answers(addr) }); err != nil {
		t.Error("the server lives on")
	}
	// Nobody removes its folder now but the next run that finds it old enough.
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), "cacheguard-postgresql-*"))
	_, port, _ := net.SplitHostPort(addr)
	for _, dir := range left {
		pidfile, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
		if err == nil && strings.Contains(string(pidfile), "\n"+port+"\n") {
			_ = os.RemoveAll(dir)
		}
	}
}
