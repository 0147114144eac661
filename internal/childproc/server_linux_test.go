package childproc

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/childproc/kittest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

func TestServerDiesWithItsParent(t *testing.T) {
	temp := t.TempDir()
	kittest.DiesWithItsParent(t, func(addr string) bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, parentEnv+"=1", "TMPDIR="+temp)

	// Its folder stays until another run sweeps it.
	t.Setenv("TMPDIR", temp)
	left, _ := filepath.Glob(filepath.Join(temp, workdirPrefix+"*"))
	if len(left) != 1 {
		t.Fatalf("folders left: %v", left)
	}
	makeOld(t, left[0])
	waittest.Until(t, "the sweep", func() bool {
		sweep()
		_, err := os.Stat(left[0])
		return os.IsNotExist(err)
	})

}

// The parent-death signal is sent at the end of the thread that started the
// child, and Go ends the thread of a goroutine that ends locked to it.
func TestServerOutlivesTheThreadOfItsStarter(t *testing.T) {
	type result struct {
		server *Server
		err    error
		thread int
	}
	results := make(chan result)
	go func() {
		runtime.LockOSThread()
		s, err := New(echo())
		results <- result{s, err, syscall.Gettid()}
	}()
	got := <-results
	if got.err != nil {
		t.Fatal(got.err)
	}
	defer got.server.Stop()
	if got.thread != os.Getpid() { // the main thread is parked, not ended
		waittest.Until(t, "the end of the thread", func() bool {
			_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", got.thread))
			return os.IsNotExist(err)
		})

	}
	wantAnswer(t, got.server)
}

func TestSweepSparesTheLivingAndTheYoung(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	living := start(t)
	makeOld(t, living.Dir())

	folder := func(name string) string {
		path := filepath.Join(temp, workdirPrefix+name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, logName), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	young, abandoned := folder("young"), folder("abandoned")
	makeOld(t, abandoned)

	sweep()
	for path, want := range map[string]bool{living.Dir(): true, young: true, abandoned: false} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", path, err == nil, want)
		}
	}
}

func makeOld(t *testing.T, path string) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
}
