package redisstore_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// lookalikes are prefixes and caches that look alike when they are joined with colons.
var lookalikes = []struct{ prefix, cache string }{
	{"", "eu:user"}, {":eu", "user"}, {"", "eu:user:"}, {":eu:", "user"}, {":eu", "user:"},
	{"", "eu%3Auser"}, {"", ":eu:user"}, {":", "eu:user"},
}

// However similar the joined names of a prefix and a cache are, no two of them share a value, a
// change or a lease.
func TestPrefixesAndCachesAreApart(t *testing.T) {
	t.Parallel()
	t.Run("server", func(t *testing.T) {
		addr := redistest.Start(t).Addr()
		prefixesAndCachesAreApart(t, func() redis.UniversalClient { return newClient(t, addr) })
	})
	t.Run("cluster", func(t *testing.T) {
		addrs := redistest.StartCluster(t, 3, 0).Addrs()
		prefixesAndCachesAreApart(t, func() redis.UniversalClient {
			return clusterClient(t, addrs...)
		})
	})
}

func prefixesAndCachesAreApart(t *testing.T, client func() redis.UniversalClient) {
	ctx, base := t.Context(), newPrefix()
	var all []*replica
	for _, l := range lookalikes {
		all = append(all, newReplica(t, "", base+l.prefix, func(s *site) {
			s.rdb, s.cache.Name = client(), l.cache
		}))
	}
	has := func(of int, want cacheguard.Status) {
		t.Helper()
		res, err := all[of].cache.Peek(ctx, "k")
		if err != nil || res.Status != want ||
			(want == cacheguard.StatusHit &&
				res.Value != lookalikes[of].prefix+"|"+lookalikes[of].cache) {
			t.Errorf("prefix %q and cache %q have %+v, %v; want a %v", lookalikes[of].prefix,
				lookalikes[of].cache, res, err, want)
		}
	}
	var letGo []func()
	for _, r := range all { // all leases are held at the same time
		o := newOrigin("v")
		letGo = append(letGo, o.hold())
		waiting := r.ask(t, 1, "leased", o.load)
		waittest.Next(t, "it is loaded beside the others", o.began)
		defer waiting.got(t, "v")
	}
	for _, f := range letGo {
		f()
	}
	for i, l := range lookalikes {
		must(t, all[i].cache.Set(ctx, "k", l.prefix+"|"+l.cache))
		for j := range lookalikes {
			if j <= i {
				has(j, cacheguard.StatusHit)
			} else {
				has(j, cacheguard.StatusMiss)
			}
		}
	}
	got, err := all[0].cache.GetMany(ctx, []string{"k"}, func(
		context.Context, []string,
	) (map[string]string, error) {
		return nil, nil
	})
	if err != nil || got["k"] != "|eu:user" {
		t.Errorf("together with others it is %q, %v", got, err)
	}
	for i := range lookalikes {
		must(t, all[i].cache.Invalidate(ctx, "k"))
		for j := range lookalikes {
			if j <= i {
				has(j, cacheguard.StatusMiss)
			} else {
				has(j, cacheguard.StatusHit)
			}
		}
	}
}
