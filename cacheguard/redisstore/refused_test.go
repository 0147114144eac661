package redisstore_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// If a server refuses connections with an error, it has done nothing. Each step returns this error
// for each of its keys. go-redis returns the error for the whole pipeline, and its commands look as
// if they had been answered.
func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]struct {
		args     []string
		password string
		says     string
	}{
		"wrong password": {[]string{"--requirepass", "right"}, "wrong", "WRONGPASS"},
		// The server may close the connection before the client has read the error.
		"no password":      {[]string{"--requirepass", "right"}, "", ""},
		"too many clients": {[]string{"--maxclients", "1"}, "", ""}, // here, too
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redisServer := redistest.Start(t, server.args...)
			if name == "too many clients" { // this connection is the first, and stays
				first := newClient(t, redisServer.Addr())
				conn := first.Conn()
				t.Cleanup(func() { _ = conn.Close() })
				must(t, conn.Ping(t.Context()).Err())
			}
			rdb := redis.NewClient(&redis.Options{
				Addr: redisServer.Addr(), Password: server.password, ContextTimeoutEnabled: true,
				MaxRetries: -1,
			})
			t.Cleanup(func() { _ = rdb.Close() })
			store, err := redisstore.New(rdb, redisstore.Options{
				OpTimeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
			})
			must(t, err)
			t.Cleanup(func() { _ = store.Close() })
			checkRefused(t, store, server.says)
		})
	}
}

func checkRefused(t *testing.T, s *redisstore.Store, says string) {
	ctx := t.Context()
	keys := []cacheguard.Key{
		{Cache: "test", Key: "a"}, {Cache: "test", Key: "b"}, {Cache: "test", Key: "c"},
	}
	refused := func(step string, errs ...error) {
		t.Helper()
		for i, err := range errs {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: the error for key %d of %d is %v, want %s in it", step, i+1,
					len(errs), err, says)
			}
		}
	}
	for _, n := range []int{1, 2, 3} {
		some := keys[:n]
		each := func(err error) (all []error) {
			failed, _ := err.(cacheguard.KeyErrors)
			for _, k := range some {
				all = append(all, failed[k.Key])
			}
			return all
		}
		refused("Invalidate", each(s.Invalidate(ctx, some))...)
		refused("MarkStale", each(s.MarkStale(ctx, some, 8, []byte("mark")))...)
		got, _ := s.GetMany(ctx, some, []string{"tag"})
		refused("GetMany", errorsOf(got)...)
		asks, grants, fills := make([]cacheguard.LeaseAsk, n), make([]cacheguard.Grant, n),
			make([]cacheguard.FillAsk, n)
		for i, k := range some {
			asks[i] = cacheguard.LeaseAsk{Token: cacheguard.ID{1}, TTL: time.Second}
			fills[i] = cacheguard.FillAsk{Key: k, Frame: []byte("frame"), TTL: time.Second}
		}
		refused("LeaseMany", errorsOf(s.LeaseMany(ctx, some, asks))...)
		refused("RenewMany", errorsOf(s.RenewMany(ctx, some, grants, time.Second))...)
		refused("FillMany", errorsOf(s.FillMany(ctx, fills))...)
	}
	_, _, plain := s.Get(ctx, keys[0], nil)
	_, _, tagged := s.Get(ctx, keys[0], []string{"tag"})
	_, gens := s.Generations(ctx, "test", []string{"tag"})
	_, tags := s.InvalidateTags(ctx, "test", []string{"tag"})
	_, claim := s.Claim(ctx, keys[0], cacheguard.ID{1}, time.Second)
	refused("Get, Get, Generations, InvalidateTags, Claim, Release", plain, tagged, gens, tags,
		claim, s.Release(ctx, keys[0], cacheguard.ID{1}))
	_, inspected := s.Inspect(ctx, "test", "a")
	_, scanned := s.Scan(ctx, "test", redisstore.ScanOptions{})
	refused("Inspect, Scan", inspected, scanned)

	// Many reads at a time, which are sent in batches.
	errs := make([]error, 20)
	var reading sync.WaitGroup
	for i := range errs {
		reading.Go(func() { _, _, errs[i] = s.Get(ctx, keys[i%len(keys)], []string{"tag"}) })
	}
	reading.Wait()
	refused("Get, side by side", errs...)
}

func errorsOf[T any](replies []cacheguard.Reply[T]) (all []error) {
	for _, r := range replies {
		all = append(all, r.Err)
	}
	return all
}
