package zklock_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock/zklock"
	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// In TestLeadersComeAndGo three processes take a lock in turn, on three servers whose leader is
// killed again and again. Running requests break, and the clients connect to other servers. A lock
// that is held in the meantime stays held.
func TestLeadersComeAndGo(t *testing.T) {
	ensemble := zktest.StartEnsemble(t, 3)
	addrs := strings.Join(ensemble.Addrs(), ",")
	opts := zklock.Options{Prefix: "/ensemble", Lease: 50 * time.Second}
	var fleet []*process
	for range 3 {
		fleet = append(fleet, open(t, addrs, opts))
	}
	kept := acquire(t, fleet[0], "kept")

	var inside atomic.Int32
	var last, turns atomic.Int64
	turned, stop := make(chan struct{}), make(chan struct{})
	var work sync.WaitGroup
	for _, p := range fleet {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				held, err := p.Lock(t.Context(), "busy")
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				if before := last.Swap(held.Token()); before >= held.Token() {
					t.Errorf("token %d after %d", held.Token(), before)
				}
				turns.Add(1)
				inside.Add(-1)
				if err := held.Unlock(t.Context()); err != nil {
					t.Errorf("Unlock: %v", err)
				}
				select {
				case turned <- struct{}{}:
				default:
				}
			}
		})
	}
	progress := func(what string) {
		t.Helper()
		limit := time.After(5 * time.Minute) // on a busy machine an election takes long
		for range 6 {                        // some for each process
			select {
			case <-turned:
			case <-limit:
				t.Fatalf("still waiting: turns %s", what)
			}
		}
	}
	progress("in peace")
	for range 3 {
		var leader *zktest.Server
		waittest.Until(t, "a leader", func() bool {
			leader = ensemble.Leader()
			return leader != nil
		})
		leader.Kill()
		progress("without the old leader")
		if err := leader.Restart(); err != nil {
			t.Fatal(err)
		}
		progress("with the old leader as one of them")
	}
	close(stop)
	work.Wait()
	t.Logf("%d turns", turns.Load())
	if err := kept.Unlock(testContext(t)); err != nil {
		t.Errorf("the lock that was held all the time: %v", err)
	}
	for _, name := range []string{"busy", "kept"} {
		if line := fleet[0].line(t, "/ensemble", name); len(line) > 0 {
			t.Errorf("left in line for %s are %v", name, line)
		}
	}
}
