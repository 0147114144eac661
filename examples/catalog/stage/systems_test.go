package stage_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// These are the flaws of locks in other systems than one Redis.

// A row doesn't expire: if a holder dies, its row stays.
func TestHolderOfARowDies(t *testing.T) {
	db, err := sql.Open("sqlite",
		"file:"+filepath.Join(t.TempDir(), "locks.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), stage.SQLRows); err != nil {
		t.Fatal(err)
	}
	l := newLab(t, "sqlrow")
	withDB := func(r *stage.Replica) { r.DB = db }
	if v := l.request("first", l.replica(withDB)).get(t); v != "version 1" ||
		l.count("first", stage.Unlocked) != 1 {
		t.Errorf("got %q; seen: %v", v, l.all())
	}
	if err := l.rdb.Del(t.Context(), l.key).Err(); err != nil {
		t.Fatal(err)
	}
	dies := l.halt("a", stage.Acquired)
	l.request("a", l.replica(withDB))
	l.reached(dies)
	l.request("b", l.replica(withDB))
	l.until("b", stage.Wait, 10)
	var rows int
	if err := db.QueryRowContext(t.Context(),
		`SELECT count(*) FROM shop_lock`).Scan(&rows); err != nil || rows != 1 || l.loads != 1 {
		t.Errorf("%d rows, %v, %d loads", rows, err, l.loads)
	}
}

// threeMasters starts three masters, and returns them with an option that makes a replica use them.
func threeMasters(
	t *testing.T, ttl time.Duration,
) (servers []*redistest.Server, of func(*stage.Replica)) {
	t.Helper()
	for range 3 {
		servers = append(servers, redistest.Start(t))
	}
	return servers, func(r *stage.Replica) {
		r.LockTTL = ttl
		for _, s := range servers {
			rdb := redis.NewClient(&redis.Options{
				Addr: s.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1,
			})
			t.Cleanup(func() { _ = rdb.Close() })
			r.Masters = append(r.Masters, rdb)
		}
	}
}

// A master that comes back without its data votes a second time, and two requests have the lock.
func TestMasterComesBackEmpty(t *testing.T) {
	servers, masters := threeMasters(t, time.Minute)
	lastAway := func(r *stage.Replica) {
		masters(r)
		_ = r.Masters[2].Close() // so that no request to this master is still running later
	}
	for _, forgets := range []bool{false, true} {
		l := newLab(t, "redlock")
		l.key += fmt.Sprint(forgets)
		first, second := l.hold("a", querying), l.hold("b", querying)
		l.request("a", l.replica(lastAway))
		l.reached(first) // with the votes of two masters
		if forgets {
			must(t, servers[1].Restart()) // without its data
		}
		l.request("b", l.replica(masters))
		if forgets {
			l.reached(second) // while a still works
		} else {
			l.until("b", stage.Wait, 5)
		}
		first.release()
		second.release()
	}
}

// Without a majority a request tries again, for as long as a lock lasts. Then it is an error.
func TestNoMajority(t *testing.T) {
	for _, comesBack := range []bool{true, false} {
		ttl, waits := time.Second, 1 // on a busy machine, one try may take this long
		if comesBack {
			ttl, waits = time.Minute, 3
		}
		servers, masters := threeMasters(t, ttl)
		servers[1].Kill()
		servers[2].Kill()
		l := newLab(t, "redlock")
		a := l.request("a", l.replica(masters))
		l.until("a", stage.Wait, waits)
		if !comesBack {
			select {
			case <-a.done:
			case <-time.After(patience):
				t.Fatal("it tries for ever")
			}
			if a.err == nil || l.loads != 0 {
				t.Errorf("without a majority: %q, %v, %d loads", a.value, a.err, l.loads)
			}
			continue
		}
		must(t, servers[1].Restart())
		if v := a.get(t); v != "version 1" {
			t.Errorf("got %q", v)
		}
	}
}

// If all waiting requests watch the queue, the number of wake-ups grows with the square of their
// number.
func TestHerd(t *testing.T) {
	const waiting = 8
	server := zktest.Shared(t)
	woken := map[string]int{}
	for _, name := range []string{"herd", "predecessor"} {
		l := newLab(t, name)
		first := l.hold("first", querying)
		replica := func() stage.Protection {
			return l.replica(func(r *stage.Replica) {
				conn, _, err := zk.Connect([]string{server.Addr()}, 10*time.Second,
					zk.WithLogger(silent{}))
				must(t, err)
				t.Cleanup(conn.Close)
				r.ZooKeeper = conn
			})
		}
		a := l.request("first", replica())
		l.reached(first)
		var others []*answer
		for i := range waiting {
			who := fmt.Sprint("waiter ", i)
			others = append(others, l.request(who, replica()))
			l.until(who, stage.Wait, 1)
		}
		first.release()
		a.get(t)
		for _, o := range others {
			o.get(t)
		}
		woken[name] = l.count("", stage.Announced)
		if l.loads != 1 {
			t.Errorf("%s: %d loads", name, l.loads)
		}
	}
	t.Logf("woken with %d waiting: %v", waiting, woken)
	if n := woken["predecessor"]; n > waiting {
		t.Errorf("those who watch the one before were woken %d times, want %d at most", n, waiting)
	}
	if n := woken["herd"]; n < 2*waiting {
		t.Errorf("those who watch all were woken %d times; that is no herd", n)
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
