package redistest

import (
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestServerStartsAndStops(t *testing.T) {
	s := Start(t)
	rdb := newClient(t, s.Addr())
	if err := rdb.Set(testContext(t), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if s.Pid() == 0 {
		t.Error("a running server has no pid")
	}
	dir := s.Dir()
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if s.Pid() != 0 {
		t.Error("a stopped server has a pid")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("working directory is left: %v", err)
	}
	if _, err := net.Dial("tcp", s.Addr()); err == nil {
		t.Error("a stopped server accepts")
	}
	if err := s.Restart(); !errors.Is(err, ErrStopped) {
		t.Errorf("Restart after Stop: %v", err)
	}
	s.Kill() // of a stopped one: nothing
}

func TestServerRestartsEmptyOnItsPort(t *testing.T) {
	s := Start(t)
	ctx, rdb := testContext(t), newClient(t, s.Addr())
	for _, revive := range []func() error{
		s.Restart,
		func() error { s.Kill(); return s.Restart() },
	} {
		if err := rdb.Set(ctx, "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		addr, pid := s.Addr(), s.Pid()
		if err := revive(); err != nil {
			t.Fatal(err)
		}
		if s.Addr() != addr || s.Pid() == pid {
			t.Errorf("addr %s, pid %d; were %s, %d", s.Addr(), s.Pid(), addr, pid)
		}
		wantValue(t, s, "k", "")
		// The connections in the pool are dead; the next call may meet one.
		_ = rdb.Ping(ctx)
	}
}

func TestKilledServerRefuses(t *testing.T) {
	s := Start(t)
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
}

func TestPausedServerIsSilentUntilResumed(t *testing.T) {
	s := Start(t)
	if err := s.Pause(); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no SIGSTOP on " + runtime.GOOS)
	} else if err != nil {
		t.Fatal(err)
	}
	w := dial(t, s.Addr()) // the kernel accepts
	w.send("SET k v")
	w.wantSilence()
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	w.want("+OK\r\n")

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

func TestServerTakesArguments(t *testing.T) {
	s := Start(t, "--maxmemory", "3mb", "--requirepass", "secret", "--appendonly", "yes", "--appendfsync", "always")
	ctx := testContext(t)
	rdb := newClient(t, s.Addr(), func(o *redis.Options) { o.Password = "secret" })
	limit, err := rdb.ConfigGet(ctx, "maxmemory").Result()
	if err != nil {
		t.Fatal(err)
	}
	if limit["maxmemory"] != "3145728" {
		t.Errorf("maxmemory is %v", limit)
	}
	if err := rdb.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	// The arguments hold after a restart too; these ask for persistence.
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	again := newClient(t, s.Addr(), func(o *redis.Options) { o.Password = "secret" })
	if got, err := again.Get(ctx, "k").Result(); got != "v" || err != nil {
		t.Errorf("after the restart: %q, %v", got, err)
	}
}

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	Shared(t) // skips where there is no server at all
	_, err := NewServer("--no-such-option", "1")
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("got %v, want what redis-server says of the option", err)
	}
}

func TestNoServerOnThePath(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := NewServer(); !errors.Is(err, ErrNoServer) {
		t.Errorf("got %v, want ErrNoServer", err)
	}
}

// While a server is down another program may get its port; a restart waits
// for it.
func TestRestartWaitsForItsPort(t *testing.T) {
	s := Start(t)
	s.Kill()
	squatter, err := net.Listen("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	restarted := make(chan error, 1)
	go func() { restarted <- s.Restart() }()
	eventually(t, "a try to bind", func() bool { return s.Logged("Address already in use") })
	if err := squatter.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	wantValue(t, s, "k", "")
}
