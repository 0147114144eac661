package redistest

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/childproc/kittest"
)

func TestServerStartsAndStops(t *testing.T) {
	s := Start(t)
	rdb := newClient(t, s.Addr())
	if err := rdb.Set(testContext(t), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	kittest.StopsForGood(t, s, ErrStopped)
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
		kittest.Revives(t, s, revive)
		wantValue(t, s, "k", "")
		// The connections in the pool are dead; the next call may meet one.
		_ = rdb.Ping(ctx)
	}
}

func TestKilledServerRefuses(t *testing.T) {
	s := Start(t)
	s.Kill()
	kittest.IsGone(t, s)
}

func TestPausedServerIsSilentUntilResumed(t *testing.T) {
	s := Start(t)
	var w *wire
	kittest.SilentWhilePaused(t, s, func() {
		w = dial(t, s.Addr()) // the kernel accepts
		w.send("SET k v")
		w.wantSilence()
	}, func() { w.want("+OK\r\n") })
}

func TestServerTakesArguments(t *testing.T) {
	s := Start(t, "--maxmemory", "3mb", "--requirepass", "secret", "--appendonly", "yes",
		"--appendfsync", "always")
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

func TestRestartWaitsForItsPort(t *testing.T) {
	s := Start(t)
	kittest.WaitsForItsPort(t, s, "Address already in use")
	wantValue(t, s, "k", "")
}
