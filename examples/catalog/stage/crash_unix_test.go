//go:build unix

package stage_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

// A holder's process is killed. The test reads from Redis what the process has left behind.
func TestProcessIsKilled(t *testing.T) {
	const ttl = 10 * time.Second
	for _, c := range []struct {
		stage string
		at    stage.Point
		ever  bool // the lock stays
	}{
		{"setnx", querying, true},
		{"expire", stage.Between, true},
		{"expire", querying, false},
		{"setnxex", querying, false},
		{"owner", querying, false},
		{"compare", querying, false},
		{"watchdog", querying, false},
		{"cacheguard", querying, false},
	} {
		t.Run(fmt.Sprint(c.stage, " ", c.at), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, c.stage)
			l.key += string(c.at)
			p := l.start(c.at, ttl)
			p.kill()
			killed := time.Now()
			lasts := l.lockLasts()
			other := l.request("b", l.replica(lasting(ttl)))
			switch {
			case c.ever:
				l.until("b", stage.Wait, 10)
				if lasts != -1 || l.loads != 0 {
					t.Errorf("the lock lasts %v more, %d loads; want for ever, and none", lasts,
						l.loads)
				}
				return
			case c.stage != "cacheguard" && (lasts <= 0 || lasts > ttl):
				t.Errorf("the lock lasts %v more, want %v at most", lasts, ttl)
			}
			if v := other.get(t); v != "version 1" || l.loads != 1 {
				t.Errorf("%q after %d loads", v, l.loads)
			}
			t.Logf("the lock lasted %v more; answered %v after the holder died", lasts,
				time.Since(killed).Round(time.Millisecond))
		})
	}
}

// A holder's process is stopped for longer than its lock lasts, and then goes on. A watchdog is
// stopped with its process. So only a store that knows the current holder refuses the late value.
func TestProcessStandsStill(t *testing.T) {
	for name, want := range map[string]string{"watchdog": "version 1", "cacheguard": "version 2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, name)
			a := l.start(querying, time.Second)
			must(t, a.cmd.Process.Signal(syscall.SIGSTOP))
			defer func() { _ = a.cmd.Process.Signal(syscall.SIGCONT) }()
			l.change()
			p := l.replica(lasting(time.Second))
			if v := l.request("b", p).get(t); v != "version 2" {
				t.Errorf("b got %q", v)
			}
			must(t, a.cmd.Process.Signal(syscall.SIGCONT))
			fmt.Fprintln(a.stdin)
			if name == "watchdog" {
				a.says("answer: version 1 <nil>\n")
			} else if _, err := a.said.ReadString('\n'); err != nil {
				t.Error(err)
			}
			if v := l.cached(p); v != want {
				t.Errorf("cached is %q, want %q", v, want)
			}
		})
	}
}
