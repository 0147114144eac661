package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// A full Redis evicts leases and values, by every policy. An evicted lease costs at most one more
// load, and the first load's result is refused. An evicted value is a miss.
func TestEviction(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"allkeys-lru", "allkeys-random", "volatile-ttl"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--maxmemory", "4mb", "--maxmemory-policy", policy)
			admin := newClient(t, server.Addr())
			prefix := newPrefix()
			first, second := newReplica(t, server.Addr(), prefix),
				newReplica(t, server.Addr(), prefix)
			first.listens(t)
			second.listens(t)
			older, newer := newOrigin("old"), newOrigin("new")
			endOlder := older.hold()
			mine := first.ask(t, 5, "k", older.load)
			waittest.Next(t, "the first replica loads", older.began)
			mine.arrived.Wait()

			crowdOut(t, admin, first.leaseName("k"))
			began := time.Now()
			second.get(t, "k", newer.load).is(t, "new")
			normal := time.Since(began)
			endOlder()
			mine.got(t, "old")
			if n := first.events.of(cacheguard.EventFillRefused); n != 1 {
				t.Errorf("%d fills were refused; want 1", n)
			}
			second.get(t, "k", mustNotLoad(t)).hit(t, "new")

			crowdOut(t, admin, first.valueName("k"))
			newer.set("newer", nil)
			theirs := crowds{first.ask(t, 5, "k", newer.load), second.ask(t, 5, "k", newer.load)}
			theirs.got(t, "newer")
			for _, r := range []*replica{first, second} {
				r.get(t, "k", mustNotLoad(t)).hit(t, "newer")
				if n := r.events.of(cacheguard.EventStoreError) +
					r.events.of(cacheguard.EventCorrupt); n > 0 {
					t.Errorf("%d errors of the store were seen; want none", n)
				}
			}
			older.loaded(t, 1)
			newer.loaded(t, 2)
			figures(t, policy+" evicts a lease, then a value", 3, normal, theirs.wait(t)...)
		})
	}
}

// crowdOut fills Redis with other data until a name has been evicted, and then frees the memory
// again.
func crowdOut(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	const some = 100
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	junk := strings.Repeat("j", 4<<10)
	var names []string
	for there := int64(1); there > 0; {
		pipe := rdb.Pipeline()
		for range some {
			names = append(names, fmt.Sprint("junk ", len(names)))
			pipe.Set(ctx, names[len(names)-1], junk, time.Hour)
		}
		_, err := pipe.Exec(ctx)
		must(t, err)
		there, err = rdb.Exists(ctx, name).Result()
		must(t, err)
	}
	must(t, rdb.Del(ctx, names...).Err())
}
