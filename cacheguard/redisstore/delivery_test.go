package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// holds reads keys through the replica, and returns the keys that still have an old value.
func holds(t *testing.T, r *replica, keys []string) (old []string) {
	t.Helper()
	for _, key := range keys {
		res, err := r.cache.Peek(t.Context(), key)
		must(t, err)
		if res.Value == "old" {
			old = append(old, key)
		}
	}
	return old
}

func numbered(what string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint(what, i)
	}
	return keys
}

// setOld stores old values. The second half of them has a tag.
func setOld(t *testing.T, r *replica, keys []string) {
	t.Helper()
	for i, key := range keys {
		e := cacheguard.Entry[string]{Value: "old", TTL: time.Hour}
		if i >= len(keys)/2 {
			e.Tags = []string{"tag"}
		}
		must(t, r.cache.SetEntry(t.Context(), key, e))
	}
}

// If keys are invalidated while Redis can't be reached, they are invalidated when it can be reached
// again. No other process has the old values for longer.
func TestInvalidationsArriveAfterAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, outage := range outages {
		for kind, client := range clientKinds {
			if kind == "cluster" {
				continue // commands of a cluster client don't pass through the proxy
			}
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				p := redistest.StartProxy(t, server.Addr())
				prefix := newPrefix()
				writer := newReplica(t, "", prefix, func(s *site) {
					s.rdb, s.store.OpTimeout = client(t, p.Addr()), lossTime
				})
				reader := newReplica(t, server.Addr(), prefix)
				keys := numbered("k", 100)
				setOld(t, reader, keys)
				outage.begin(t, p)
				if err := writer.cache.Invalidate(t.Context(), keys[:50]...); !errors.Is(err,
					cacheguard.ErrPending) {
					t.Errorf("Invalidate: %v", err)
				}
				if err := writer.cache.InvalidateTags(t.Context(), "tag"); !errors.Is(err,
					cacheguard.ErrPending) {
					t.Errorf("InvalidateTags: %v", err)
				}
				if n := len(holds(t, reader, keys)); n == 0 {
					t.Error("it was no outage")
				}
				outage.end(t, p)
				ctx, cancel := context.WithTimeout(t.Context(), longLease)
				defer cancel()
				must(t, writer.cache.Flush(ctx))
				if old := holds(t, reader, keys); len(old) > 0 {
					t.Errorf("%d of %d old values are still served: %s", len(old), len(keys), old)
				}
			})
		}
	}
}

// A master dies in the middle of 1,000 changes. The changes that it has acknowledged and that its
// successor doesn't know are repeated. This also holds if the subscription is at another node, and
// for a process that only writes.
func TestInvalidationsSurviveAFailover(t *testing.T) {
	t.Parallel()
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		s := redistest.StartSentinel(t, 1, 3)
		// A Sentinel takes no replica that has lost its master ten times as long ago.
		downAfter(t, s, 5*time.Second)
		f := newForgetful(t, func(x *site) { x.rdb = failoverClient(t, s) })
		ctx, cancel := context.WithTimeout(t.Context(), 24*patience)
		defer cancel()
		old, err := s.Master(ctx)
		must(t, err)
		f.loses(ctx, s.Node(old))
		_, err = s.AwaitFailover(ctx, old)
		must(t, err)
		f.recovers(ctx)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t, 3, 1)
		f := newForgetful(t, func(x *site) { x.rdb = clusterClient(t, c.Addrs()...) })
		ctx, cancel := context.WithTimeout(t.Context(), 24*patience)
		defer cancel()
		listens, err := c.Master(ctx, redisstore.Channel(f.prefix))
		must(t, err)
		var key, old string
		for _, key = range f.keys {
			old, err = c.Master(ctx, f.writer.valueName(key))
			must(t, err)
			if old != listens {
				break
			}
		}
		f.loses(ctx, c.Node(old))
		_, err = c.AwaitFailover(ctx, f.writer.valueName(key), old)
		must(t, err)
		f.recovers(ctx)
	})
}

// forgetful is a fleet whose master accepts changes and dies before its replica has them.
type forgetful struct {
	t              *testing.T
	prefix         string
	keys           []string // these are changed by name, the last ones by a tag
	writer, reader *replica
	rest           chan int // how many changes after the master's death were acknowledged
}

const (
	changesKept  = 250 // changes that the replica has
	changesLost  = 400
	changesAfter = 350 // the master's death
	tagged       = 100 // more values, which have the tag
)

func newForgetful(t *testing.T, client func(*site)) *forgetful {
	f := &forgetful{t: t, prefix: newPrefix(), rest: make(chan int, 1)}
	f.keys = numbered("k", changesKept+changesLost+changesAfter+tagged)
	f.writer, f.reader = newReplica(t, "", f.prefix, client), newReplica(t, "", f.prefix, client)
	const writers = 8
	var setting sync.WaitGroup
	for w := range writers {
		setting.Go(func() {
			for i := w; i < len(f.keys); i += writers {
				e := cacheguard.Entry[string]{Value: "old", TTL: time.Hour}
				if i >= len(f.keys)-tagged {
					e.Tags = []string{"tag"}
				}
				if err := f.reader.cache.SetEntry(t.Context(), f.keys[i], e); err != nil {
					t.Errorf("SetEntry: %v", err)
					return
				}
			}
		})
	}
	setting.Wait()
	return f
}

// loses lets the master accept changes that its replica doesn't get, and then stops it, while the
// writer goes on.
func (f *forgetful) loses(ctx context.Context, master *redistest.Server) {
	t, rdb := f.t, newClient(f.t, master.Addr())
	for _, key := range f.keys[:changesKept] {
		must(t, f.writer.cache.Invalidate(t.Context(), key))
	}
	if n, err := rdb.Wait(t.Context(), 1, patience).Result(); err != nil || n != 1 {
		t.Fatalf("%d replicas have the old values, %v", n, err)
	}
	must(t, rdb.Do(t.Context(), "ACL", "SETUSER", "default", "-psync", "-sync").Err())
	must(t, rdb.ClientKillByFilter(t.Context(), "TYPE", "replica").Err())
	lost := f.keys[changesKept : changesKept+changesLost]
	// In few trips, because only the changes of the last 30 s are repeated.
	var some []string
	for hundred := range slices.Chunk(lost, 100) {
		for _, key := range hundred[:3] {
			must(t, f.writer.cache.Set(t.Context(), key, "new"))
		}
		must(t, f.writer.cache.Invalidate(t.Context(), hundred[3:]...))
		some = append(some, hundred[2:4]...)
	}
	must(t, f.writer.cache.InvalidateTags(t.Context(), "tag"))
	some = append(some, f.keys[len(f.keys)-3:]...)
	if old := holds(t, f.reader, some); len(old) > 0 {
		t.Errorf("%d old values are there before anything happens", len(old))
	}
	master.Kill()
	go func() {
		done := 0
		for _, key := range f.keys[changesKept+changesLost:][:changesAfter] {
			if err := f.writer.cache.Invalidate(ctx, key); err == nil {
				done++
			}
		}
		f.rest <- done
	}()
}

// recovers waits until the writer has noticed the failover, and checks that no value is left that
// the new master had from before the changes.
func (f *forgetful) recovers(ctx context.Context) {
	t := f.t
	began := time.Now()
	after := 0
	select {
	case after = <-f.rest:
	case <-ctx.Done():
		t.Fatal("the changes of afterwards take too long")
	}
	lost, since := int64(0), time.Time{}
	waittest.Until(t, "what the new master didn't know is repeated", func() bool {
		if err := f.writer.cache.Flush(ctx); err != nil {
			return false
		}
		const readers = 8 // one after another they take long on a slow machine
		var reading sync.WaitGroup
		var old, failed atomic.Int64
		for r := range readers {
			reading.Go(func() {
				for i := r; i < len(f.keys); i += readers {
					switch res, err := f.reader.cache.Peek(ctx, f.keys[i]); {
					case err != nil:
						failed.Add(1)
						return
					case res.Value == "old":
						old.Add(1)
					}
				}
			})
		}
		if reading.Wait(); failed.Load() > 0 {
			return false
		}
		if since.IsZero() {
			lost, since = old.Load(), time.Now()
		}
		return old.Load() == 0 && f.writer.cache.Stats().SentLate > 0
	})

	t.Logf("acknowledged: %d and a tag by the old master, %d later; %d old values were there when Redis could be used again, %v after that; none %v later; %d changes repeated",
		changesKept+changesLost, after, lost, since.Sub(began).Round(time.Millisecond),
		time.Since(since).Round(time.Millisecond), f.writer.cache.Stats().SentLate)
}
