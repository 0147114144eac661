package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// tagged is a load whose result has tags.
func (o *origin) tagged(tags ...string) cacheguard.EntryFunc[string] {
	return func(
		ctx context.Context, _ cacheguard.Result[string],
	) (cacheguard.Entry[string], error) {
		v, err := o.load(ctx)
		return cacheguard.Entry[string]{Value: v, Tags: tags}, err
	}
}

// notTagged is a load for a key that must have a value.
func notTagged(t *testing.T) cacheguard.EntryFunc[string] {
	return func(
		ctx context.Context, _ cacheguard.Result[string],
	) (cacheguard.Entry[string], error) {
		v, err := mustNotLoad(t)(ctx)
		return cacheguard.Entry[string]{Value: v}, err
	}
}

// getEntry is get for a load of an entry.
func (r *replica) getEntry(t *testing.T, key string, load cacheguard.EntryFunc[string]) (a answer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a.res, a.err = r.cache.GetEntry(ctx, key, load)
	return a
}

// calls starts a caller of a key, and doesn't wait for it.
func (r *replica) calls(
	t *testing.T, key string, load cacheguard.EntryFunc[string],
) (wait func() answer) {
	t.Helper()
	done := make(chan answer, 1)
	go func() { done <- r.getEntry(t, key, load) }()
	return func() answer {
		t.Helper()
		select {
		case a := <-done:
			return a
		case <-time.After(patience):
			t.Fatalf("a caller of %s has no answer after %v", key, patience)
			return answer{}
		}
	}
}

func (r *replica) generations() string { return redisstore.GenerationsName(r.prefix, "test") }
func (r *replica) whole() string       { return redisstore.WholeName(r.prefix, "test") }

// bumps are the ways to invalidate values with the tag "t".
var bumps = map[string]func(context.Context, *cacheguard.Cache[string]) error{
	"tag": func(ctx context.Context, c *cacheguard.Cache[string]) error {
		return c.InvalidateTags(ctx, "t")
	},
	"all": func(ctx context.Context, c *cacheguard.Cache[string]) error {
		return c.InvalidateAll(ctx)
	},
}

// twoTagged returns two replicas. Their cache has a value with the tag "t", one with the tag
// "other", and one without tags.
func twoTagged(t *testing.T, addr string, change ...func(*site)) (a, b *replica) {
	t.Helper()
	prefix := newPrefix()
	a, b = newReplica(t, addr, prefix, change...), newReplica(t, addr, prefix, change...)
	a.listens(t)
	b.listens(t)
	a.getEntry(t, "k", newOrigin("old").tagged("t")).is(t, "old")
	a.getEntry(t, "other", newOrigin("v").tagged("other")).is(t, "v")
	a.getEntry(t, "plain", newOrigin("v").tagged()).is(t, "v")
	hasTagged(t, "old", a, b)
	return a, b
}

func hasTagged(t *testing.T, k string, all ...*replica) {
	t.Helper()
	for _, r := range all {
		for range 2 { // the first read learns which tags to read
			r.getEntry(t, "k", notTagged(t)).hit(t, k)
			r.getEntry(t, "other", notTagged(t)).hit(t, "v")
			r.getEntry(t, "plain", notTagged(t)).hit(t, "v")
		}
	}
}

// The generations are lost in some way while values stay. Invalidated values stay invalid, later
// results are valid, and each value is loaded once more at most.
func TestGenerationsAreLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, harm := range map[string]func(ctx context.Context, rdb redis.UniversalClient,
		name string) error{
		"deleted": func(ctx context.Context, rdb redis.UniversalClient, name string) error {
			return rdb.Del(ctx, name).Err()
		},
		"a string": func(ctx context.Context, rdb redis.UniversalClient, name string) error {
			return rdb.Set(ctx, name, "x", 0).Err()
		},
		"a hash": func(ctx context.Context, rdb redis.UniversalClient, name string) error {
			if err := rdb.Del(ctx, name).Err(); err != nil {
				return err
			}
			return rdb.HSet(ctx, name, "", "1").Err()
		},
		"without the floor": func(
			ctx context.Context, rdb redis.UniversalClient, name string,
		) error {
			return rdb.ZRem(ctx, name, "").Err()
		},
		"ends by itself": func(ctx context.Context, rdb redis.UniversalClient, name string) error {
			if err := rdb.PExpire(ctx, name, time.Millisecond).Err(); err != nil {
				return err
			}
			for rdb.Exists(ctx, name).Val() > 0 {
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
			return nil
		},
	} {
		for how, bump := range bumps {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				a, b := twoTagged(t, server.Addr())
				must(t, bump(t.Context(), a.cache))
				must(t, harm(t.Context(), a.rdb, a.generations()))
				o := newOrigin("new")
				b.getEntry(t, "k", o.tagged("t")).is(t, "new")
				o.set("v", nil)
				for _, key := range []string{"other", "plain"} {
					a.getEntry(t, key, o.tagged(key)).is(t, "v")
				}
				if n := o.loads.Load(); n > 3 {
					t.Errorf("%d loads of three keys", n)
				}
				hasTagged(t, "new", a, b)

				must(t, harm(t.Context(), a.rdb, a.generations()))
				must(t, bump(t.Context(), b.cache)) // the invalidation finds no generations
				o = newOrigin("newer")
				a.getEntry(t, "k", o.tagged("t")).is(t, "newer")
				b.getEntry(t, "k", o.tagged("t")).hit(t, "newer")
				o.loaded(t, 1)
			})
		}
	}
}

// If the reply to an invalidation is lost, the step is sent again, and flushed scripts are sent
// again, too.
func TestLostReplyOfInvalidateTags(t *testing.T) {
	t.Parallel()
	for how, bump := range bumps {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := redistest.StartProxy(t, server.Addr())
			a, b := twoTagged(t, p.Addr(), func(s *site) { s.store.OpTimeout = lossTime })
			lost := p.DropReply(redistest.IsEval(redisstore.BumpScript))
			must(t, bump(t.Context(), a.cache))
			waittest.Next(t, "the reply is lost", lost.Struck())
			for _, v := range []string{"new", "newer"} {
				o := newOrigin(v)
				b.getEntry(t, "k", o.tagged("t")).is(t, v)
				a.getEntry(t, "k", o.tagged("t")).hit(t, v)
				o.loaded(t, 1)
				must(t, a.rdb.ScriptFlush(t.Context()).Err())
				must(t, bump(t.Context(), b.cache))
				must(t, a.rdb.ScriptFlush(t.Context()).Err())
			}
		})
	}
}

// The script of an invalidation begins with a removal. After a removal Redis accepts the script's
// further writes, also when its memory is full. So a Redis that accepts no other writes still
// executes invalidations.
func TestInvalidateTagsOutOfMemory(t *testing.T) {
	t.Parallel()
	for how, bump := range bumps {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			a, b := twoTagged(t, server.Addr())
			must(t, a.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
			must(t, bump(t.Context(), a.cache))
			if res, err := b.cache.Peek(t.Context(), "k"); err != nil ||
				res.Status != cacheguard.StatusMiss {
				t.Errorf("an invalidated value is there: %+v, %v", res, err)
			}
			must(t, a.rdb.Del(t.Context(), a.generations(), a.whole()).Err()) // evicted
			for _, key := range []string{"k", "other", "plain"} {
				if res, err := b.cache.Peek(t.Context(), key); err != nil ||
					res.Status != cacheguard.StatusMiss {
					t.Errorf("%s, of which nobody knows the generation: %+v, %v", key, res, err)
				}
			}
		})
	}
}

// If Redis' clock is set back, some invalidations are in the future. Values that are loaded after
// them are still valid.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for how, member := range map[string]string{"tag": "t", "all": ""} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			a, b := twoTagged(t, server.Addr())
			// This is the time of an invalidation from before the clock was set back.
			hour := float64(time.Now().Add(time.Hour).UnixMicro())
			must(t,
				a.rdb.ZAdd(t.Context(), a.generations(),
					redis.Z{Score: hour, Member: member}).Err())
			for _, v := range []string{"new", "newer", "newest"} {
				o := newOrigin(v)
				for range 3 {
					a.getEntry(t, "k", o.tagged("t")).is(t, v)
					b.getEntry(t, "k", o.tagged("t")).hit(t, v)
				}
				o.loaded(t, 1)
				if v == "new" {
					must(t, b.cache.InvalidateTags(t.Context(), "t"))
				} else {
					must(t, b.cache.InvalidateAll(t.Context()))
				}
			}
			must(t,
				a.cache.SetEntry(t.Context(), "k",
					cacheguard.Entry[string]{Value: "set", Tags: []string{"t"}}))
			b.getEntry(t, "k", notTagged(t)).hit(t, "set")
		})
	}
}

// If Redis' clock is set back after a load, the load's value is in the future. An invalidation is
// newer than the value all the same, and what is loaded after it is valid.
func TestClockGoesBackAfterLoad(t *testing.T) {
	t.Parallel()
	for how, bump := range bumps {
		for what, client := range map[string]func(*redis.Client) redis.UniversalClient{
			"one server":    func(c *redis.Client) redis.UniversalClient { return c },
			"as in cluster": func(c *redis.Client) redis.UniversalClient { return own{c} },
		} {
			for with, store := range map[string]func(t *testing.T, r *replica){
				"load": func(t *testing.T, r *replica) {
					r.getEntry(t, "k", newOrigin("old").tagged("t")).is(t, "old")
				},
				"set": func(t *testing.T, r *replica) {
					must(t, r.cache.SetEntry(t.Context(), "k",
						cacheguard.Entry[string]{Value: "old", Tags: []string{"t"}}))
				},
			} {
				t.Run(fmt.Sprintf("%s, %s, %s", how, what, with), func(t *testing.T) {
					t.Parallel()
					server, prefix := miniredis.RunT(t), newPrefix()
					now := time.Now()
					server.SetTime(now.Add(-time.Minute)) // when the cache became known
					// One process, which measures the clock once: the clock stands still, so two
					// processes would not agree about the ages of values.
					r := newReplica(t, "", prefix, func(s *site) {
						s.rdb = client(newClient(t, server.Addr()))
					})
					r.listens(t)
					must(t, bump(t.Context(), r.cache))
					server.SetTime(now)
					store(t, r)
					r.getEntry(t, "k", notTagged(t)).is(t, "old")

					server.SetTime(now.Add(-200 * time.Millisecond))
					must(t, bump(t.Context(), r.cache))
					if res, err := r.cache.Peek(t.Context(), "k"); err != nil ||
						res.Status != cacheguard.StatusMiss {
						t.Errorf("an invalidated value is there: %+v, %v", res, err)
					}
					r.getEntry(t, "k", newOrigin("new").tagged("t")).is(t, "new")
					r.getEntry(t, "k", notTagged(t)).hit(t, "new")
				})
			}
		}
	}
}

// If there are too many invalidated tags, the oldest ones are forgotten. This changes nothing for
// values, except for those that are older than the newest forgotten invalidation.
func TestManyTagsAreForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	prefix := newPrefix()
	a := newReplica(t, server.Addr(), prefix)
	a.listens(t)
	const most = 50
	bump := func(tags ...string) string {
		args := []any{redisstore.CacheChannel(prefix, "test"), redisstore.Channel(prefix), "", most}
		for _, tag := range tags {
			args = append(args, tag)
		}
		score, err := redis.NewScript(redisstore.BumpScript).Run(t.Context(), a.rdb,
			[]string{a.generations(), a.whole()}, args...).Text()
		must(t, err)
		return score
	}
	get := func(key, want string, tags ...string) {
		t.Helper()
		a.getEntry(t, key, newOrigin("v").tagged(tags...)).is(t, want)
	}
	get("oldest", "v", "quiet")
	first := bump("first")
	get("old", "v", "quiet")
	scores := map[string]string{"first": first}
	for i := range most - 3 { // the cache itself and the last grant have an entry, too
		tag := fmt.Sprint("tag", i)
		scores[tag] = bump(tag)
	}
	if n := a.rdb.ZCard(t.Context(), a.generations()).Val(); n != most {
		t.Errorf("%d are remembered, want %d", n, most)
	}
	a.getEntry(t, "oldest", notTagged(t)).hit(t, "v")
	get("new", "v", "quiet", "tag0")
	scores["last"] = bump("last")

	all, err := a.rdb.ZRangeWithScores(t.Context(), a.generations(), 0, -1).Result()
	must(t, err)
	if len(all) > most-most/10+1 || len(all) < most/2 {
		t.Errorf("%d are remembered after a tenth of %d was forgotten", len(all), most)
	}
	if all[0].Member != "" {
		t.Fatalf("the cache itself is not the oldest: %v", all[:2])
	}
	left := make(map[string]bool)
	for _, z := range all[1:] {
		if z.Member == "\x00" { // the last grant
			continue
		}
		left[z.Member.(string)] = true
		if want := scores[z.Member.(string)]; fmt.Sprintf("%.0f", z.Score) != want ||
			z.Score <= all[0].Score {
			t.Errorf("%s is of %.0f, want %s, and after %.0f", z.Member, z.Score, want,
				all[0].Score)
		}
	}
	for tag, score := range scores {
		var n float64
		_, _ = fmt.Sscan(score, &n)
		if left[tag] != (n > all[0].Score) {
			t.Errorf("%s of %s: remembered: %v; the cache is of %.0f", tag, score, left[tag],
				all[0].Score)
		}
	}
	a.getEntry(t, "new", notTagged(t)).hit(t, "v")
	for _, key := range []string{"oldest", "old"} {
		if res, err := a.cache.Peek(t.Context(), key); err != nil ||
			res.Status != cacheguard.StatusMiss {
			t.Errorf("%s, older than what was forgotten: %+v, %v", key, res, err)
		}
	}
	for i := range 10 * most { // again and again, also many at once
		bump(fmt.Sprint("more", i), fmt.Sprint("even more", i))
		if n := a.rdb.ZCard(t.Context(), a.generations()).Val(); n > most {
			t.Fatalf("%d are remembered", n)
		}
		if i%most == 0 {
			get(fmt.Sprint("live", i), "v", "quiet")
			a.getEntry(t, fmt.Sprint("live", i), notTagged(t)).hit(t, "v")
		}
	}
	var at []string
	for i := range 3 * most {
		at = append(at, fmt.Sprint("at once", i))
	}
	get("before", "v", "at once7")
	bump(at...)
	if res, err := a.cache.Peek(t.Context(), "before"); err != nil ||
		res.Status != cacheguard.StatusMiss {
		t.Errorf("what was invalidated along with too many: %+v, %v", res, err)
	}
	get("after", "v", "at once7")
	a.getEntry(t, "after", notTagged(t)).hit(t, "v")
}
