package redisstore_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// tagsMessage returns the message of an invalidation of these tags, or of the whole cache. Every
// client that may publish can send it.
func tagsMessage(generation string, tags ...string) []byte {
	m := append([]byte{'t'}, make([]byte, 16)...)
	m = append(binary.BigEndian.AppendUint16(m, uint16(len("test"))), "test"...)
	m = binary.BigEndian.AppendUint16(m, 0)
	for _, tag := range tags {
		m = append(append(m, byte(len(tag))), tag...)
	}
	return append(m, generation...)
}

// served checks that each process loads k once more at most, and then serves it.
func served(t *testing.T, what string, all ...*replica) {
	t.Helper()
	servedOf(t, what, "k", []string{"t"}, all...)
}

func servedOf(t *testing.T, what, key string, tags []string, all ...*replica) {
	t.Helper()
	o := newOrigin("new")
	for range 3 {
		for _, r := range all {
			if a := r.getEntry(t, key, o.tagged(tags...)); a.err != nil {
				t.Fatalf("%s: got %+v, %v", what, a.res, a.err)
			}
		}
	}
	for _, r := range all {
		if a := r.getEntry(t, key, o.tagged(tags...)); a.res.Status != cacheguard.StatusHit {
			t.Errorf("%s: a value that was loaded is a %v; want a hit", what, a.res.Status)
		}
	}
	if n := o.loads.Load(); n > int64(len(all)) {
		t.Errorf("%s: %d loads in %d processes", what, n, len(all))
	}
}

// A message may have any generation. If the generation can't be true, this costs only one read of
// Redis: values are served, and true invalidations work, without a restart.
func TestForgedGenerations(t *testing.T) {
	t.Parallel()
	single := redistest.Start(t)
	cluster := redistest.StartCluster(t, 3, 0)
	for kind, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"server": func(t *testing.T) redis.UniversalClient { return newClient(t, single.Addr()) },
		"cluster": func(t *testing.T) redis.UniversalClient {
			return clusterClient(t, cluster.Addrs()...)
		},
	} {
		for what, generation := range map[string]string{
			"above 2^53": "9999999999999999", "2^53": "9007199254740992",
			"just below": "9007199254740990",
			"in an hour": fmt.Sprint(time.Now().Add(time.Hour).UnixMicro()),
			"long ago":   "0000000000000001",
		} {
			for of, tags := range map[string][]string{"tag": {"t"}, "all": nil} {
				t.Run(kind+", "+what+", "+of, func(t *testing.T) {
					t.Parallel()
					prefix := newPrefix()
					join := func() *replica {
						return newReplica(t, "", prefix, func(s *site) { s.rdb = client(t) })
					}
					a, b := join(), join()
					a.listens(t)
					b.listens(t)
					a.getEntry(t, "k", newOrigin("old").tagged("t")).is(t, "old")
					for range 2 {
						// With this read b learns the generations.
						b.getEntry(t, "k", notTagged(t)).hit(t, "old")
					}
					forge := func() {
						must(t,
							a.rdb.Publish(t.Context(), redisstore.Channel(prefix),
								tagsMessage(generation, tags...)).Err())
					}
					forge()
					forge()
					b.toldOfTags(t, func() {
						must(t, a.cache.InvalidateTags(t.Context(), "another"))
					}, generation)
					served(t, what, a, b)
					b.toldOfTags(t, func() {
						must(t, a.cache.InvalidateTags(t.Context(), "t"))
					}, generation)
					for _, r := range []*replica{a, b} {
						if res, err := r.cache.Peek(t.Context(), "k"); err != nil ||
							res.Status != cacheguard.StatusMiss {
							t.Errorf("an invalidation after the forged one left %+v, %v", res, err)
						}
					}
					served(t, what+", and an invalidation", a, b)
				})
			}
		}
	}
}

// A score may be any number. If it can't be a time, the next load repairs it. Values that were
// loaded before are invalid, and values that are loaded later are valid and can be invalidated.
func TestForgedScores(t *testing.T) {
	t.Parallel()
	single := redistest.Start(t)
	cluster := redistest.StartCluster(t, 3, 0)
	for kind, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"server": func(t *testing.T) redis.UniversalClient { return newClient(t, single.Addr()) },
		"cluster": func(t *testing.T) redis.UniversalClient {
			return clusterClient(t, cluster.Addrs()...)
		},
	} {
		for _, score := range []float64{
			1 << 53, 1<<53 - 1, 1<<53 - 2, 1<<53 - 3, 1e300, math.Inf(1),
		} {
			for of, member := range map[string]string{"tag": "t", "all": "", "another": "another"} {
				t.Run(fmt.Sprintf("%s, %g, %s", kind, score, of), func(t *testing.T) {
					t.Parallel()
					prefix := newPrefix()
					join := func() *replica {
						return newReplica(t, "", prefix, func(s *site) { s.rdb = client(t) })
					}
					a := join()
					a.listens(t)
					a.getEntry(t, "k", newOrigin("old").tagged("t")).is(t, "old")
					must(t,
						a.rdb.ZAdd(t.Context(), a.generations(),
							redis.Z{Score: score, Member: member}).Err())
					b := join() // this process knows nothing from before
					b.listens(t)
					if of != "another" {
						if res, err := b.cache.Peek(t.Context(), "k"); err != nil ||
							res.Status != cacheguard.StatusMiss {
							t.Errorf("what was invalidated in the far future is %+v, %v", res, err)
						}
					}
					served(t, "forged score", b)
					for range 4 { // more often than there are numbers
						b.toldOfTags(t, func() {
							must(t, b.cache.InvalidateTags(t.Context(), "t"))
						})
						if res, err := b.cache.Peek(t.Context(), "k"); err != nil ||
							res.Status != cacheguard.StatusMiss {
							t.Errorf("an invalidation after the forged one left %+v, %v", res, err)
						}
						served(t, "forged score, and an invalidation", b)
					}
				})
			}
		}
	}
}

// A lease or a record with impossible numbers is overwritten by the next load at once.
func TestForgedNumbersInLeases(t *testing.T) {
	t.Parallel()
	r := newReplica(t, redistest.Start(t).Addr(), newPrefix())
	r.listens(t)
	id := cacheguard.ID{1}.String()
	year := 365 * 24 * time.Hour
	for what, lease := range map[string]struct {
		text string
		ttl  time.Duration
	}{
		"a lease for a year":          {"-" + id + "1700000000000000", year},
		"a lease for a year, awaited": {"+" + id + "1700000000000000", year},
		"a lease without an end":      {"-" + id + "1700000000000000", 0},
		"a back-off of 10^30 ms": {
			"!f" + id + ":1" + fmt.Sprintf("%030d", 0) + ":1" + fmt.Sprintf("%030d", 0) +
				":1:\x00boom", year,
		},
		"a record kept for 10^400 ms": {
			"!f" + id + ":1" + fmt.Sprintf("%0400d", 0) + ":1:1:\x00boom", year,
		},
		"failures without number": {
			"!f" + id + ":1:1:" + fmt.Sprintf("%0400d", 7) + ":\x00boom", year,
		},
		"a back-off longer than its record": {
			"!f" + id + ":1:999999999999999:1:\x00boom", 50 * time.Millisecond,
		},
	} {
		must(t, r.rdb.Set(t.Context(), r.leaseName(what), lease.text, lease.ttl).Err())
		waittest.Until(t, what+" is overwritten", func() bool {
			// A believed lease would keep it waiting.
			ctx, cancel := context.WithTimeout(t.Context(), opTimeout)
			defer cancel()
			v, err := r.cache.Get(ctx, what, newOrigin("v").load)
			return err == nil && v == "v"
		})

	}
}

// No permit is valid for longer than it can be taken for, and no process is told to wait for its
// end.
func TestForgedPermits(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	prefix := newPrefix()
	rdb := newClient(t, server.Addr())
	s := newStore(t, rdb, redisstore.Options{Prefix: prefix, OpTimeout: opTimeout})
	name := prefix + ":{b}:permits"
	take := func(token byte) (bool, time.Duration) {
		t.Helper()
		taken, wait, err := s.TakePermit(t.Context(), "b", cacheguard.ID{token}, 1, time.Second)
		must(t, err)
		return taken, wait
	}
	for _, score := range []float64{1e17, 1e300, math.Inf(1)} {
		must(t, rdb.ZAdd(t.Context(), name, redis.Z{Score: score, Member: "forged"}).Err())
	}
	if taken, _ := take(1); !taken {
		t.Error("a permit that can't be one keeps the others away")
	}
	must(t, s.ReturnPermit(t.Context(), "b", cacheguard.ID{1}))
	// This could be a permit from before the clock was set back.
	soon := float64(time.Now().Add(time.Minute).UnixMilli())
	must(t, rdb.ZAdd(t.Context(), name, redis.Z{Score: soon, Member: "forged"}).Err())
	if taken, wait := take(2); taken || wait < 0 || wait > time.Second {
		t.Errorf("taken: %v, wait %v; want to wait for as long as a permit lasts, at most", taken,
			wait)
	}
}

// No message tells of a repair by hand. It takes effect with the next invalidation.
func TestGenerationsRepairedByHand(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	r := newReplica(t, "", newPrefix(), func(s *site) {
		s.rdb = clusterClient(t, cluster.Addrs()...)
	})
	r.listens(t)
	r.getEntry(t, "k", newOrigin("old").tagged("t")).is(t, "old")
	day := float64(time.Now().Add(24 * time.Hour).UnixMicro())
	must(t, r.rdb.ZAdd(t.Context(), r.generations(), redis.Z{Score: day, Member: ""}).Err())
	// With this call r learns of the generations.
	r.toldOfTags(t, func() { must(t, r.cache.InvalidateAll(t.Context())) })
	served(t, "a day ahead", r)
	must(t, r.rdb.Del(t.Context(), r.generations()).Err())
	must(t, r.rdb.Del(t.Context(), r.valueName("k")).Err())
	r.toldOfTags(t, func() { must(t, r.cache.InvalidateAll(context.Background())) })
	served(t, "repaired", r)
}
