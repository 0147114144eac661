package outbox_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/outbox"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

const (
	childEnv = "CACHEGUARD_OUTBOX_CHILD"
	products = 20

	// A quarter of it must be enough to connect to the database, even on a busy machine.
	relayLease = 4 * time.Second
)

// replica is a process of the shop, as its parent process describes it.
type replica struct {
	System system
	Redis  string
	Prefix string
	Writes bool   // false: the process only relays
	DieAt  string // the point at which the process kills itself when it gets there for the Nth time
	Nth    int64
}

// store returns the store of the replicas, which waits for a busy machine.
func (r replica) store(rdb *redis.Client) (*redisstore.Store, error) {
	return redisstore.New(rdb,
		redisstore.Options{Prefix: r.Prefix, OpTimeout: 3 * time.Second})
}

// points are the points at which a replica may die.
var points = []string{
	"before the commit", "after the commit", "before the delivery", "after the delivery",
	"during the removal",
}

// child is the process of a replica. It writes until it is killed, and reports each commit.
func child(config string) int {
	err := func() error {
		var r replica
		if err := json.Unmarshal([]byte(config), &r); err != nil {
			return err
		}
		go func() { // the parent process has died
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		db, err := r.System.open()
		if err != nil {
			return err
		}
		rdb := redis.NewClient(&redis.Options{Addr: r.Redis, ContextTimeoutEnabled: true})
		store, err := r.store(rdb)
		if err != nil {
			return err
		}
		m := &mortal{Store: store, replica: r, rdb: rdb}
		box, err := outbox.New(db, m, r.System.options(func(o *outbox.Options) {
			o.Lease, o.Logger = relayLease, slog.New(slog.NewTextHandler(os.Stderr, nil))
		}))
		if err != nil {
			return err
		}
		go func() { _ = box.Run(context.Background()) }()
		fmt.Println("ready")
		if !r.Writes {
			select {}
		}
		for {
			if err := m.sell(db, box); err != nil {
				return err
			}
			fmt.Println("sold")
		}
	}()
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// mortal is the store of a process that dies at a certain point.
type mortal struct {
	cacheguard.Store
	replica
	rdb  *redis.Client
	come atomic.Int64
}

func (m *mortal) at(point string) {
	if m.DieAt == point && m.come.Add(1) == m.Nth {
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		panic(fmt.Sprint("still alive: ", err))
	}
}

// Invalidate records the order in which sales are delivered.
func (m *mortal) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	m.at("before the delivery")
	for _, k := range keys {
		if n, ok := strings.CutPrefix(k.Key, "sale:"); ok {
			if err := m.rdb.RPush(ctx, m.Prefix+":delivered", n).Err(); err != nil {
				return err
			}
		}
	}
	err := m.Store.Invalidate(ctx, keys)
	m.at("after the delivery")
	if m.DieAt == "during the removal" {
		time.AfterFunc(time.Duration(rand.N(int64(time.Millisecond))), func() {
			m.at("during the removal")
		})
	}
	return err
}

// sell changes a product and counts the sale. All sales update the row of the count, so
// transactions commit in the order of their numbers.
func (m *mortal) sell(db *sql.DB, box *outbox.Box) error {
	ctx, id := context.Background(), strconv.Itoa(rand.N(products))
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	var sale int64
	if err := tx.QueryRowContext(ctx,
		"UPDATE "+m.System.Table+"_sales SET n = n + 1 RETURNING n").Scan(&sale); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	_, err = tx.ExecContext(ctx, "UPDATE "+m.System.Table+"_products SET sold = $1 WHERE id = $2",
		sale, id)
	if err = errors.Join(err,
		box.Invalidate(ctx, tx, "product", id, fmt.Sprint("sale:", sale))); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	m.at("before the commit")
	if err := tx.Commit(); err != nil {
		return err
	}
	m.at("after the commit")
	box.Wake()
	return nil
}

// running is a child process.
type running struct {
	cmd    *exec.Cmd
	sold   chan struct{} // closed when the process ends
	stderr bytes.Buffer
	ended  bool
}

func (r replica) start(t *testing.T) *running {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	p := &running{cmd: exec.Command(program), sold: make(chan struct{}, 100_000)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(config))
	p.cmd.Stderr = &p.stderr
	if _, err := p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go func() {
		defer close(p.sold)
		for in := bufio.NewScanner(out); in.Scan(); {
			switch in.Text() {
			case "ready":
				close(ready)
			case "sold":
				p.sold <- struct{}{}
			}
		}
	}()
	t.Cleanup(func() { p.end(t) })
	waittest.Next(t, "a process that begins", ready)
	return p
}

// end kills the process, if it is alive.
func (p *running) end(t *testing.T) {
	t.Helper()
	if p.ended {
		return
	}
	p.ended = true
	_ = p.cmd.Process.Kill()
	for range p.sold {
	}
	_ = p.cmd.Wait()
	text := p.stderr.String()
	if strings.Contains(text, "panic") || strings.Contains(text, "DATA RACE") {
		t.Errorf("a process said:\n%s", text)
	} else if t.Failed() && text != "" {
		t.Logf("a process said:\n%s", text)
	}
}

// Replicas that sell and relay are killed, at random and at each point of a sale and of its
// delivery. Some of the relays that take over are killed, too. After each death the live processes
// deliver the committed invalidations. As soon as this is done, no caller gets an older value. No
// delivery is lost, and none comes before an earlier one.
func TestKilled(t *testing.T) {
	deaths := 15
	if redistest.Soak() {
		deaths = 500
	}
	onEach(t, func(t *testing.T, s system) {
		db := s.db(t)
		s.exec(t, db, "CREATE TABLE OUTBOX_sales (n BIGINT NOT NULL)")
		s.exec(t, db, "INSERT INTO OUTBOX_sales VALUES (0)")
		s.exec(t, db,
			"CREATE TABLE OUTBOX_products (id TEXT NOT NULL PRIMARY KEY, sold BIGINT NOT NULL DEFAULT 0)")
		for id := range products {
			s.exec(t, db, "INSERT INTO OUTBOX_products (id) VALUES ($1)", strconv.Itoa(id))
		}
		r := replica{
			System: s, Redis: redistest.Start(t).Addr(),
			Prefix: s.Table + string(s.Dialect.String()[0]),
		}
		rdb := redis.NewClient(&redis.Options{Addr: r.Redis, ContextTimeoutEnabled: true})
		defer rdb.Close()
		store, err := r.store(rdb)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		cache, err := cacheguard.New(store,
			cacheguard.Options[int64]{Name: "product", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Close()
		box := s.box(t, store)
		// settled returns when no transaction of a dead process is left. A sale changes this row.
		settled := func() { s.exec(t, db, "UPDATE OUTBOX_sales SET n = n") }
		check := func() {
			t.Helper()
			for id := range products {
				var want int64
				load := func(ctx context.Context) (sold int64, err error) {
					err = db.QueryRowContext(ctx,
						"SELECT sold FROM "+s.Table+"_products WHERE id = $1",
						strconv.Itoa(id)).Scan(&sold)
					return sold, err
				}
				got, err := cache.Get(soon(t), strconv.Itoa(id), load)
				if err == nil {
					want, err = load(soon(t))
				}
				if err != nil {
					t.Fatal(err)
				}
				if got != want {
					t.Errorf("product %d: %d is cached, and %d is true", id, got, want)
				}
			}
		}
		of := make(map[string]int) // the number of deaths by point
		var took []time.Duration   // the time from a relay's start until no rows are left
		relay := func(r replica) (done bool) {
			p := r.start(t)
			defer p.end(t)
			began, flushed := time.Now(), make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
			defer cancel()
			go func() { flushed <- box.Flush(ctx) }()
			select {
			case err := <-flushed:
				if err != nil {
					t.Fatal(err)
				}
				took = append(took, time.Since(began))
				return true
			case <-p.sold: // the process is dead and sells nothing
				of["a relay, "+r.DieAt]++
				return false
			}
		}
		for n := 0; n < deaths; n++ {
			check() // check also fills the cache
			doomed := r
			doomed.Writes = true
			if n%6 == 0 {
				p := doomed.start(t)
				// In the second half of this time it may relay, because the lease of the relay
				// before it is over.
				enough := time.After(rand.N(2 * relayLease))
				for sells := true; sells; {
					select {
					case <-p.sold:
					case <-enough:
						sells = false
					}
				}
				p.end(t)
				settled()
				of["at random"]++
			} else {
				doomed.DieAt, doomed.Nth = points[n%6-1], 1+rand.N[int64](10)
				p := doomed.start(t)
				for range p.sold { // until the process dies
				}
				p.end(t)
				settled()
				of[doomed.DieAt]++
			}
			next := r // it relays when the lease of the lock has ended
			if rand.N(2) == 0 {
				if next.DieAt, next.Nth = points[2+rand.N(3)], 1; !relay(next) {
					n++
				}
				next.DieAt = ""
			}
			relay(next)
			check()
		}
		slices.Sort(took)
		t.Logf("a relay begins to nothing left: %v, 99 %% %v, longest %v; deaths: %v",
			took[len(took)/2].Round(time.Millisecond),
			took[len(took)*99/100].Round(time.Millisecond),
			took[len(took)-1].Round(time.Millisecond), of)
		wantInOrder(t, rdb, r.Prefix+":delivered", db, s)
	})
}

// wantInOrder fails the test if a sale was not delivered, or was delivered first after a later
// sale.
func wantInOrder(t *testing.T, rdb *redis.Client, list string, db *sql.DB, s system) {
	t.Helper()
	delivered, err := rdb.LRange(soon(t), list, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	var all, last int64
	if err := db.QueryRowContext(soon(t),
		"SELECT n FROM "+s.Table+"_sales").Scan(&all); err != nil {
		t.Fatal(err)
	}
	for _, text := range delivered {
		sale, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err != nil:
			t.Fatal(err)
		case sale > last+1:
			t.Fatalf("sale %d was delivered before sale %d", sale, last+1)
		}
		last = max(last, sale)
	}
	if last != all || all == 0 {
		t.Errorf("%d of %d sales were delivered", last, all)
	}
	t.Logf("%d sales, %d deliveries", all, len(delivered))
}
