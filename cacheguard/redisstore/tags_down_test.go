package redisstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// An invalidation that can't reach Redis returns an error. The process that made it doesn't serve
// the values concerned, whatever Redis says later. The next invalidation that succeeds applies to
// all.
func TestInvalidateTagsWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for how, bump := range bumps {
		for name, outage := range outages {
			for kind, client := range clientKinds {
				if kind == "cluster" {
					continue // commands of a cluster client don't pass through the proxy
				}
				t.Run(how+", "+name+", "+kind, func(t *testing.T) {
					t.Parallel()
					p := redistest.StartProxy(t, server.Addr())
					prefix := newPrefix()
					a := newReplica(t, "", prefix, func(s *site) {
						s.rdb, s.store.OpTimeout = client(t, p.Addr()), lossTime
					})
					b := newReplica(t, server.Addr(), prefix)
					b.listens(t)
					b.getEntry(t, "k", newOrigin("old").tagged("t")).is(t, "old")
					a.getEntry(t, "k", notTagged(t)).hit(t, "old")
					outage.begin(t, p)
					if err := bump(t.Context(), a.cache); err == nil {
						t.Error("an invalidation that didn't go through was none that failed")
					}
					outage.end(t, p)
					waittest.Until(t, "Redis is used again", func() bool {
						_, err := a.cache.Peek(t.Context(), "elsewhere")
						return err == nil
					})

					if res, err := a.cache.Peek(t.Context(), "k"); err != nil ||
						res.Status != cacheguard.StatusMiss {
						t.Errorf("the process that knows better found %+v, %v", res, err)
					}
					boom := errors.New("boom")
					got, err := a.cache.GetMany(t.Context(), []string{"k"}, func(
						context.Context, []string,
					) (map[string]string, error) {
						return nil, boom
					})
					if len(got) > 0 || !errors.Is(err, boom) {
						t.Errorf("the process that knows better got %v, %v", got, err)
					}
					must(t, bump(t.Context(), b.cache))
					o := newOrigin("newer")
					for _, r := range []*replica{a, b} {
						waittest.Until(t, "it has the new one", func() bool {
							return r.getEntry(t, "k", o.tagged("t")).res.Value == "newer"
						})
					}
				})
			}
		}
	}
}
