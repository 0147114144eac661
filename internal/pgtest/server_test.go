package pgtest

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/internal/childproc"
	"github.com/cacheguard/cacheguard/internal/childproc/kittest"
)

func TestServerStartsAndStops(t *testing.T) {
	s := Start(t, "work_mem=1234kB")
	db := connect(t, s.Addr())
	var setting string
	if err := db.QueryRow("SHOW work_mem").Scan(&setting); err != nil || setting != "1234kB" {
		t.Errorf("work_mem is %q, %v", setting, err)
	}
	kittest.StopsForGood(t, s, childproc.ErrStopped)
}

func TestServerIsKilledAndRemembers(t *testing.T) {
	s := Start(t)
	db := connect(t, s.Addr())
	do(t, db, "CREATE TABLE things (n int)", "INSERT INTO things VALUES (1)")
	family := children(s.Pid())
	s.Kill()
	kittest.IsGone(t, s)
	for _, child := range family {
		if alive(child) {
			t.Errorf("process %d of the killed server lives", child)
		}
	}
	kittest.Revives(t, s, s.Restart)
	if n := one(t, connect(t, s.Addr()), "SELECT count(*) FROM things"); n != 1 {
		t.Errorf("after the restart there are %d things", n)
	}
}

func TestPausedServerIsSilentUntilResumed(t *testing.T) {
	s := Start(t)
	db := connect(t, s.Addr())
	do(t, db, "CREATE TABLE things (n int)")
	kittest.SilentWhilePaused(t, s, func() {
		// The process of this connection stands still as well, not only the one that accepts.
		if _, err := db.ExecContext(within(t, moment),
			"INSERT INTO things VALUES (1)"); err == nil {
			t.Error("a paused server does things")
		}
	}, func() { do(t, db, "INSERT INTO things VALUES (2)") })
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
	addr := kittest.DiesWithItsParent(t, answers, childEnv+"=1")
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
