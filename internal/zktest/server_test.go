package zktest

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/childproc"
	"github.com/cacheguard/cacheguard/internal/childproc/kittest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

func TestServerServesAndStops(t *testing.T) {
	s := Start(t)
	create(t, client(t, s.Addr(), session), "/a")
	if srvr, err := s.Ask("srvr"); err != nil || !strings.Contains(srvr, "Mode: standalone") {
		t.Errorf("srvr: %q, %v", srvr, err)
	}
	if n, err := s.Figure("zk_ephemerals_count"); err != nil || n != 1 {
		t.Errorf("%d ephemeral nodes, %v", n, err)
	}
	if _, err := s.Figure("zk_nonsense"); err == nil {
		t.Error("a figure that there isn't")
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	kittest.IsGone(t, s)
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Errorf("its folder is left: %v", err)
	}
}

// TestRestartKeepsSessions tries again while the machine stood still, or the server started, for as
// long as a session lasts: then it is right that the session ended.
func TestRestartKeepsSessions(t *testing.T) {
	const lasts = 6 * session // and no server here lets one last longer
	s := Start(t)
	p := StartProxy(t, s.Addr())
	for try := 1; ; try++ {
		conn, since := client(t, p.Addr(), lasts), time.Now()
		create(t, conn, "/a")
		id := conn.SessionID()
		if err := RestartBehind(p, s); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "the client", func() bool {
			_, _, err := conn.Exists("/a")
			return err == nil
		})
		there, now := exists(t, conn, "/a"), conn.SessionID()
		if there && now == id {
			return
		}
		took := time.Since(since)
		if took < lasts/2 || try == 3 {
			t.Fatalf("the node is there: %v; session %x, was %x; after %v", there, now, id, took)
		}
		t.Logf("tried again, for a restart took %v", took)
	}
}

func TestRestartEmptyKeepsNothing(t *testing.T) {
	s := Start(t)
	create(t, client(t, s.Addr(), 6*session), "/a")
	if err := s.RestartEmpty(); err != nil {
		t.Fatal(err)
	}
	if exists(t, client(t, s.Addr(), session), "/a") {
		t.Error("an empty server has a node")
	}
}

func TestSessionsEndSoon(t *testing.T) {
	s := Shared(t)
	p := StartProxy(t, s.Addr())
	watcher := client(t, s.Addr(), session)
	create(t, client(t, p.Addr(), brief), "/brief")
	there, _, gone, err := watcher.ExistsW("/brief")
	if err != nil || !there {
		t.Fatal(there, err)
	}
	p.Blackhole(true)
	<-gone
	if exists(t, watcher, "/brief") {
		t.Error("the node outlives its session")
	}
}

func TestPausedServerIsSilent(t *testing.T) {
	s := Start(t)
	conn := client(t, s.Addr(), session)
	create(t, conn, "/a")
	if err := s.Pause(); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no SIGSTOP")
	} else if err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	go func() {
		_, _, _ = conn.Exists("/a")
		close(answered)
	}()
	wantOpen(t, answered, "a paused server answers")
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	waittest.Next(t, "an answer", answered)
}

func TestArgumentsAreLinesOrProperties(t *testing.T) {
	s := Start(t, "maxSessionTimeout=7000", "-Dzktest.name=properly")
	conf, err := s.Ask("conf")
	if err != nil || !strings.Contains(conf, "maxSessionTimeout=7000") {
		t.Errorf("conf: %q, %v", conf, err)
	}
	if _, err := NewServer("tickTime=none"); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("got %v, want what ZooKeeper says of the line", err)
	}
}

func TestRestartWaitsForItsPort(t *testing.T) {
	s := Start(t)
	kittest.WaitsForItsPort(t, s, "Address already in use")
	create(t, client(t, s.Addr(), session), "/a")
}

func TestSharedIsOneServerThatComesBack(t *testing.T) {
	s := Shared(t)
	if Shared(t) != s {
		t.Fatal("a second server")
	}
	s.Kill()
	if Shared(t) != s || s.Pid() == 0 {
		t.Error("it doesn't come back")
	}
}

func TestWithoutJavaTestsAreSkippedOrFail(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := NewServer(); !errors.Is(err, ErrNoServer) {
		t.Errorf("got %v, want ErrNoServer", err)
	}
	kittest.SkipsOrFails(t, func(v *kittest.Verdict) {
		if s := Start(v); s != nil {
			t.Fatal("a server without java")
		}
	})
}

func TestStoppedProxyRefusesForGood(t *testing.T) {
	p := StartProxy(t, "127.0.0.1:1")
	p.Close()
	if err := p.Refuse(false); !errors.Is(err, childproc.ErrStopped) {
		t.Errorf("got %v, want ErrStopped", err)
	}
}
