package redisstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// After a SCRIPT FLUSH nothing in a pipeline would send a script again. Every key still gets an
// answer, at the first try and in each of the pipelines that many keys need.
func TestManyAfterScriptFlush(t *testing.T) {
	t.Parallel()
	flush := func(ctx context.Context, rdb *redis.Client) error {
		return rdb.ScriptFlush(ctx).Err()
	}
	t.Run("single server", func(t *testing.T) {
		t.Parallel()
		rdb := newClient(t, redistest.Start(t).Addr())
		manyAfterScriptFlush(t, rdb, func() { must(t, flush(t.Context(), rdb)) })
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		rdb := clusterClient(t, redistest.StartCluster(t, 3, 0).Addrs()...)
		manyAfterScriptFlush(t, rdb, func() { must(t, rdb.ForEachMaster(t.Context(), flush)) })
	})
}

func manyAfterScriptFlush(t *testing.T, rdb redis.UniversalClient, flush func()) {
	const n = 300
	ctx := t.Context()
	s := newStore(t, rdb, redisstore.Options{Prefix: newPrefix(), OpTimeout: opTimeout})
	keys, asks := make([]cacheguard.Key, n), make([]cacheguard.LeaseAsk, n)
	for i := range n {
		keys[i] = cacheguard.Key{Cache: "test", Key: fmt.Sprint(i)}
		asks[i] = cacheguard.LeaseAsk{
			Token: cacheguard.ID{1, byte(i), byte(i >> 8)}, TTL: longLease,
		}
	}
	// The first store has sent nothing yet, the second one has loaded the scripts.
	for _, warm := range []bool{false, true} {
		if warm {
			must(t, s.Warm(ctx))
			must(t, s.Invalidate(ctx, keys))
		}
		flush()
		grants, fills := make([]cacheguard.Grant, n), make([]cacheguard.FillAsk, n)
		for i, r := range s.LeaseMany(ctx, keys, asks) {
			if r.Err != nil || r.Answer.State != cacheguard.LeaseGranted ||
				r.Answer.Grant.Token != asks[i].Token {
				t.Fatalf("lease %d of %d: %+v, %v; want it granted", i, n, r.Answer, r.Err)
			}
			grants[i] = r.Answer.Grant
			fills[i] = cacheguard.FillAsk{
				Key: keys[i], Grant: grants[i], Frame: []byte(fmt.Sprint("value ", i)),
				TTL: longLease,
			}
		}
		flush()
		for i, r := range s.RenewMany(ctx, keys, grants, longLease) {
			if r.Err != nil || r.Answer != cacheguard.HoldingMine {
				t.Fatalf("renewal %d of %d: %v, %v; want that it is the holder's", i, n, r.Answer,
					r.Err)
			}
		}
		flush()
		for i, r := range s.FillMany(ctx, fills) {
			if r.Err != nil || r.Answer != cacheguard.FillStored {
				t.Fatalf("fill %d of %d: %v, %v; want it stored", i, n, r.Answer, r.Err)
			}
		}
		flush()
		must(t, s.MarkStale(ctx, keys, 0, []byte("none of them has room for this mark")))
		flush()
		replies, _ := s.GetMany(ctx, keys, []string{"t"})
		for i, r := range replies {
			if r.Err != nil || string(r.Answer) != string(fills[i].Frame) {
				t.Fatalf("value %d of %d: %q, %v; want %q", i, n, r.Answer, r.Err, fills[i].Frame)
			}
		}
		flush()
		if _, err := s.InvalidateTags(ctx, "test", []string{"t"}); err != nil {
			t.Error(err)
		}
		flush()
		must(t, s.Invalidate(ctx, keys))
		if f, _, err := s.Get(ctx, keys[n-1], nil); f != nil || err != nil {
			t.Errorf("after an invalidation of all: %q, %v", f, err)
		}
	}
}
