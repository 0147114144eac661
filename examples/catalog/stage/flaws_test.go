package stage_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

// Each of these tests forces the flaw of a stage, and shows that a later stage doesn't have it.

// each runs a test for each stage.
func each(t *testing.T, test func(t *testing.T, l *lab), stages ...string) {
	for _, name := range stages {
		t.Run(name, func(t *testing.T) { test(t, newLab(t, name)) })
	}
}

// lasting sets the time that a replica's locks last.
func lasting(ttl time.Duration) func(*stage.Replica) {
	return func(r *stage.Replica) { r.LockTTL = ttl }
}

// In a stampede without protection every request loads. With a local lock one request of each
// replica loads. With the later stages one request loads.
func TestLoads(t *testing.T) {
	const replicas, requests = 4, 10
	want := map[string]int{"none": replicas * requests, "local": replicas}
	each(t, func(t *testing.T, l *lab) {
		var all sync.WaitGroup
		begun := make(chan struct{})
		for range replicas {
			p := l.replica(func(r *stage.Replica) {
				r.LockTTL = time.Minute // otherwise a lock can end before all requests are there
				r.Load = func(ctx context.Context, key string) (string, error) {
					<-begun
					return l.load(ctx, key)
				}
			})
			for range requests {
				all.Go(func() {
					if v, err := p.Get(t.Context(), l.key); v != "version 1" || err != nil {
						t.Errorf("%q, %v", v, err)
					}
				})
			}
		}
		switch l.stage {
		case "none":
			l.until("", stage.Load, replicas*requests)
		case "local": // a holder's second look is a miss, too
			l.until("", stage.Load, replicas)
		case "cacheguard": // it counts requests that join a flight only when they are served
			l.until("", stage.Load, 1)
		default:
			l.until("", stage.Miss, replicas*requests)
		}
		close(begun)
		all.Wait()
		if n := max(want[l.stage], 1); l.loads != n {
			t.Errorf("%d loads, want %d", l.loads, n)
		}
	}, "none", "local", "setnx", "expire", "setnxex", "owner", "compare", "watchdog", "cacheguard",
		"getset", "force", "watch", "luasetnx")
}

// For a value that doesn't exist the origin is asked once, or again and again.
func TestPenetration(t *testing.T) {
	const requests = 5
	each(t, func(t *testing.T, l *lab) {
		l.version = 0
		// The time that a step of cacheguard may take grows with the lock's time.
		p := l.replica(lasting(time.Minute))
		for range requests {
			if v := l.request("r", p).get(t); v != "" {
				t.Errorf("there is nothing, and it says %q", v)
			}
		}
		want := 1
		if l.stage == "leaky" {
			want = requests
		}
		if l.loads != want {
			t.Errorf("%d loads, want %d", l.loads, want)
		}
	}, "leaky", "none", "local", "compare", "cacheguard")
}

// A holder dies. If the lock has no expiry, no request ever loads again. If it has one, a request
// loads after the expiry.
func TestHolderDies(t *testing.T) {
	for _, c := range []struct {
		stage string
		at    stage.Point
		ever  bool // the lock stays
	}{
		{"setnx", stage.Acquired, true},
		{"expire", stage.Between, true},
		{"expire", stage.Acquired, false},
		{"setnxex", stage.Acquired, false},
		{"luasetnx", stage.Acquired, false},
		{"owner", stage.Acquired, false},
		{"compare", stage.Acquired, false},
		{"getset", stage.Acquired, false},
	} {
		t.Run(fmt.Sprint(c.stage, " ", c.at), func(t *testing.T) {
			l := newLab(t, c.stage)
			dies := l.halt("a", c.at)
			l.request("a", l.replica(nil))
			l.reached(dies)
			other := l.request("b", l.replica(nil))
			if !c.ever {
				if v := other.get(t); v != "version 1" {
					t.Errorf("got %q", v)
				}
				return
			}
			l.until("b", stage.Wait, 10)
			if lasts := l.lockLasts(); lasts != -1 {
				t.Errorf("the lock lasts %v more, want for ever", lasts)
			}
			if l.loads != 0 {
				t.Errorf("%d loads", l.loads)
			}
		})
	}
}

// A holder takes longer than the lock lasts, and then gives back the lock of another holder.
func TestSlowHolderUnlocks(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		slow, second := l.hold("a", querying), l.hold("b", querying)
		a := l.request("a", l.replica(nil))
		l.reached(slow)
		l.request("b", l.replica(lasting(time.Hour)))
		l.reached(second) // the lock of a has ended, and b has its own
		slow.release()
		a.get(t)
		wrong := slices.Contains([]string{"setnxex", "luasetnx"}, l.stage)
		if gone := !l.locked(); gone != wrong {
			t.Errorf("the lock of another request was deleted: %t, want %t", gone, wrong)
		}
		if n := l.count("a", stage.NotMine); (n == 1) == wrong {
			t.Errorf("it found %d times that the lock is not its own", n)
		}
		second.release()
	}, "setnxex", "luasetnx", "owner", "compare")
}

// Between comparing and deleting, the lock expires and another request gets it.
func TestLockEndsWhileItIsGivenBack(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		at := map[string]stage.Point{"owner": stage.Compared, "compare": stage.Unlock}[l.stage]
		pause, second := l.hold("a", at), l.hold("b", stage.Acquired)
		a := l.request("a", l.replica(lasting(time.Minute)))
		l.reached(pause)
		// The lock of a ends here. A short time could be over before a has come to this point.
		if err := l.rdb.Del(t.Context(), l.key, l.lockKey()).Err(); err != nil {
			t.Fatal(err) // without the value, b has to load
		}
		l.request("b", l.replica(lasting(time.Hour)))
		l.reached(second)
		pause.release()
		a.get(t)
		if wrong := !l.locked(); wrong != (l.stage == "owner") {
			t.Errorf("the lock of another request was deleted: %t", wrong)
		}
		second.release()
	}, "owner", "compare")
}

// A load takes longer than the lock lasts, and the value changes in the meantime.
func TestLoadIsLongerThanTheLock(t *testing.T) {
	t.Run("compare", func(t *testing.T) {
		l := newLab(t, "compare")
		p := l.replica(nil)
		slow := l.hold("a", querying)
		a := l.request("a", p)
		l.reached(slow)
		l.change()
		if v := l.request("b", l.replica(nil)).get(t); v != "version 2" {
			t.Errorf("b got %q", v)
		}
		slow.release()
		a.get(t)
		if v := l.cached(p); v != "version 1" || l.loads != 2 {
			t.Errorf("cached is %q after %d loads; the late value was to overwrite the newer one",
				v, l.loads)
		}
	})
	each(t, func(t *testing.T, l *lab) {
		slow := l.hold("a", querying)
		a := l.request("a", l.replica(lasting(6*time.Second)))
		l.reached(slow)
		b := l.request("b", l.replica(nil))
		l.until("a", stage.Renewed, 4) // longer than the lock's time
		slow.release()
		if v := a.get(t) + ", " + b.get(t); v != "version 1, version 1" || l.loads != 1 {
			t.Errorf("%s after %d loads", v, l.loads)
		}
	}, "watchdog")
}

// The value changes during a load. Unless the change ends the load's lease, the old value is stored
// afterwards.
func TestChangeDuringALoad(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		// The time that a step of cacheguard may take grows with the lock's time.
		p, other := l.replica(lasting(time.Minute)), l.replica(lasting(time.Minute))
		slow := l.hold("a", querying)
		a := l.request("a", p)
		l.reached(slow)
		l.change()
		if err := other.Changed(t.Context(), l.key); err != nil {
			t.Fatal(err)
		}
		slow.release()
		a.get(t)
		want := "version 1"
		if l.stage == "cacheguard" {
			want = "version 2"
		}
		if v := l.cached(other); v != want {
			t.Errorf("cached is %q, want %q", v, want)
		}
	}, "none", "local", "setnx", "expire", "setnxex", "owner", "compare", "watchdog", "cacheguard")
}

// If the lock's value is a time, a replica whose clock is ahead takes a lock that is held.
func TestClockIsAhead(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		first, second := l.hold("a", querying), l.hold("b", stage.Acquired)
		a := l.request("a", l.replica(lasting(time.Minute)))
		l.reached(first)
		b := l.request("b", l.replica(func(r *stage.Replica) {
			r.LockTTL = time.Minute
			r.Now = func() time.Time { return time.Now().Add(time.Hour) }
		}))
		if l.stage == "compare" {
			l.until("b", stage.Wait, 10)
			if n := l.count("b", stage.Acquired); n != 0 {
				t.Errorf("the lock is had twice")
			}
		} else {
			l.reached(second) // while a has the lock
		}
		first.release()
		second.release()
		a.get(t)
		b.get(t)
	}, "getset", "force", "compare")
}

// A request that comes second with GETSET doesn't get the lock, but has moved its end.
func TestLoserMovesTheEnd(t *testing.T) {
	l := newLab(t, "getset")
	dead := l.halt("a", stage.Acquired)
	l.request("a", l.replica(nil))
	l.reached(dead)
	loser, winner := l.hold("b", stage.Between), l.hold("c", stage.Acquired)
	l.request("b", l.replica(lasting(time.Hour)))
	l.reached(loser)
	l.request("c", l.replica(lasting(time.Minute)))
	l.reached(winner)
	before := l.rdb.Get(t.Context(), l.lockKey()).Val()
	loser.release()
	l.until("b", stage.Wait, l.count("b", stage.Wait)+1)
	if after := l.rdb.Get(t.Context(), l.lockKey()).Val(); after == before {
		t.Errorf("the winner's lock still ends at %s", before)
	}
	if n := l.count("b", stage.Acquired); n != 0 {
		t.Error("the loser has the lock")
	}
	winner.release()
}

// A request that deletes a lock which looked abandoned can delete a held lock.
func TestForceHitsALiveLock(t *testing.T) {
	l := newLab(t, "force")
	dead := l.halt("a", stage.Acquired)
	l.request("a", l.replica(nil))
	l.reached(dead)
	late, second, third := l.hold("b", stage.Between), l.hold("c", querying),
		l.hold("b", stage.Acquired)
	l.request("b", l.replica(nil))
	l.reached(late)
	l.request("c", l.replica(nil))
	l.reached(second)
	late.release()
	l.reached(third) // b and c have the lock
	third.release()
	second.release()
}

// A cached value without an expiry stays for ever, even if it changes at the origin.
func TestCachedForEver(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		p := l.replica(func(r *stage.Replica) { r.CacheTTL = 50 * time.Millisecond })
		l.request("a", p).get(t)
		l.change() // the caches aren't told
		if l.stage == "forever" {
			if lasts := l.rdb.PTTL(t.Context(), l.key).Val(); lasts != -1 {
				t.Errorf("it lasts %v", lasts)
			}
			return
		}
		for l.cached(p) != "version 2" { // a test that waits in vain is ended by go test
		}
	}, "forever", "compare", "cacheguard")
}

// The watchdog's own renewal makes EXEC do nothing, so the lock stays.
func TestRenewalAbortsTheUnlock(t *testing.T) {
	l := newLab(t, "watch")
	pause := l.hold("a", stage.Compared)
	a := l.request("a", l.replica(lasting(6*time.Second)))
	l.reached(pause)
	// One of these renewals began after the comparison.
	l.until("a", stage.Renewed, l.count("a", stage.Renewed)+2)
	pause.release()
	a.get(t)
	if n := l.count("a", stage.Aborted); n != 1 || !l.locked() {
		t.Errorf("aborted %d times, locked: %t", n, l.locked())
	}

	l = newLab(t, "watchdog")
	pause = l.hold("a", stage.Unlock)
	a = l.request("a", l.replica(lasting(6*time.Second)))
	l.reached(pause)
	l.until("a", stage.Renewed, l.count("a", stage.Renewed)+2)
	pause.release()
	a.get(t)
	if l.locked() {
		t.Error("the lock of the watchdog stays")
	}
}

// If no stage has the name, or if a stage lacks a system that it needs, the error says so.
func TestOpenRefuses(t *testing.T) {
	for _, name := range []string{"nothing", "sqlrow", "redlock", "herd", "predecessor"} {
		if _, err := stage.Open(name, &stage.Replica{}); err == nil {
			t.Errorf("%s opens without anything", name)
		} else {
			t.Log(err)
		}
	}
}
