package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// If renewals fail for a while, they are tried again while the lease is valid. The load stays the
// only one, and its result is stored.
func TestRenewalFailsForAWhile(t *testing.T) {
	t.Parallel()
	f := newWired(t, redistest.Start(t), redistest.Hangup, func(s *site) {
		// The client's own retries would take too long.
		s.cache.LeaseTTL, s.redis.MaxRetries = 12*time.Second, -1
	})
	o := newOrigin("v")
	letGo := o.hold()
	mine := f.first.ask(t, 5, "k", o.load)
	waittest.Next(t, "the first replica loads", o.began)
	others := f.othersAsk(t, "k", o.load)
	for f.first.store.renewalsFailed.Load() < 2 {
		lost := f.proxy.DropCommand(redistest.IsEval(redisstore.RenewScript), redistest.Hangup)
		waittest.Next(t, "a renewal is lost", lost.Struck())
	}
	healed := time.Now()
	waittest.Until(t, "the lease is renewed", func() bool {
		return f.first.events.of(cacheguard.EventRenewed) > 0
	})
	normal := time.Since(healed)
	letGo()
	mine.got(t, "v")
	others.got(t, "v")
	o.loaded(t, 1)
	f.stored(t)
	f.hits(t, "k", "v")
	figures(t, "renewal fails for a while (waits are the load's)", o.loads.Load(), normal,
		append(mine.answers, others.wait(t)...)...)
}

// If renewals fail until the lease is over, another replica loads. The first load goes on for its
// own callers, and its result is not stored.
func TestRenewalFailsForTooLong(t *testing.T) {
	t.Parallel()
	const lease = 5 * time.Second
	server := redistest.Start(t)
	prefix := newPrefix()
	proxy := redistest.StartProxy(t, server.Addr())
	first := newReplica(t, proxy.Addr(), prefix, func(s *site) {
		s.cache.LeaseTTL, s.store.OpTimeout = lease, lease
	})
	second := newReplica(t, server.Addr(), prefix) // its own lease outlasts the test
	first.listens(t)
	second.listens(t)
	older, newer := newOrigin("old"), newOrigin("new")
	endOlder, endNewer := older.hold(), newer.hold()
	mine := first.ask(t, 5, "k", older.load)
	waittest.Next(t, "the first replica loads", older.began)
	mine.arrived.Wait()
	theirs := second.ask(t, 5, "k", newer.load)
	second.waits(t)
	proxy.Blackhole(true)
	cut := time.Now()
	waittest.Next(t, "the second replica loads", newer.began)
	took := time.Since(cut)
	if took > lease+2*soon {
		t.Errorf("the second load began %v after the first replica was cut off; want the lease of %v at most",
			took, lease)
	}
	waittest.Until(t, "the first replica gives its lease up as lost", func() bool {
		return first.events.of(cacheguard.EventLeaseLost) == 1
	})
	proxy.Blackhole(false)
	waittest.Until(t, "Redis is used again", func() bool {
		_, err := first.cache.Peek(t.Context(), "another key")
		return err == nil
	})

	ended := time.Now()
	endOlder()
	mine.got(t, "old")
	waited := time.Since(ended)
	waittest.Until(t, "the late fill is refused", func() bool {
		return first.events.of(cacheguard.EventFillRefused) == 1
	})
	endNewer()
	theirs.got(t, "new")
	for _, r := range []*replica{first, second} {
		r.get(t, "k", mustNotLoad(t)).hit(t, "new")
	}
	older.loaded(t, 1)
	newer.loaded(t, 1)
	figures(t, "renewal fails until the lease is over (normal: second load begins)", 2, took,
		answer{took: waited}, answer{took: waited}, answer{took: waited}, answer{took: waited},
		answer{took: waited})
}

// If a renewal finds that the lease was evicted, the load goes on for the callers that have joined
// it and for nobody else. Its result is not stored.
func TestRenewalFindsNoLease(t *testing.T) {
	t.Parallel()
	f := newWired(t, redistest.Start(t), redistest.Silence, func(s *site) {
		s.cache.LeaseTTL = 8 * time.Second
	})
	older, newer := newOrigin("old"), newOrigin("new")
	endOlder := older.hold()
	mine := f.first.ask(t, 5, "k", older.load)
	waittest.Next(t, "the first replica loads", older.began)
	mine.arrived.Wait()
	must(t, f.second.rdb.Del(t.Context(), f.first.leaseName("k")).Err())
	waittest.Until(t, "the loss is noticed", func() bool {
		return f.first.events.of(cacheguard.EventLeaseLost) == 1
	})
	f.first.get(t, "k", newer.load).is(t, "new") // a newcomer doesn't join
	endOlder()
	mine.got(t, "old")
	f.hits(t, "k", "new")
	older.loaded(t, 1)
	newer.loaded(t, 1)
	if n := f.first.events.of(cacheguard.EventFillRefused); n != 1 {
		t.Errorf("%d fills were refused; want 1", n)
	}
	figures(t, "renewal finds no lease (waits are the load's)", 2, 0, mine.answers...)
}

// If a renewal finds another process's lease, the load is cancelled with the reason, and its
// callers follow the other load.
func TestRenewalFindsAnothersLease(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newWired(t, redistest.Start(t), redistest.Silence, func(s *site) {
		s.cache.LeaseTTL = 8 * time.Second
	})
	began, told := make(chan struct{}), make(chan error, 1)
	mine := f.first.ask(t, 5, "k", func(ctx context.Context) (string, error) {
		close(began)
		<-ctx.Done()
		told <- context.Cause(ctx)
		return "", ctx.Err()
	})
	waittest.Next(t, "the first replica loads", began)
	mine.arrived.Wait()

	// The other process was granted the lease while this process stood still.
	k := cacheguard.Key{Cache: "test", Key: "k"}
	other := cacheguard.Grant{Token: cacheguard.ID{7}, Number: 1_700_000_000_000_000}
	must(t, f.second.cache.Set(ctx, "model", "new"))
	model, err := f.second.rdb.Get(ctx, f.second.valueName("model")).Bytes()
	must(t, err)
	h, body, err := frame.Parse(model)
	must(t, err)
	h.ID = other.Token
	taken := time.Now()
	must(t,
		f.second.rdb.Set(ctx, f.first.leaseName("k"), "-"+other.Token.String()+"1700000000000000",
			time.Minute).Err())
	select {
	case cause := <-told:
		if !errors.Is(cause, cacheguard.ErrLeaseLost) {
			t.Errorf("the load was told %v; want %v", cause, cacheguard.ErrLeaseLost)
		}
	case <-time.After(patience):
		t.Fatal("the load was not cancelled")
	}
	noticed := time.Since(taken)
	f.first.waits(t)
	ended := time.Now()
	ans, err := f.second.store.Fill(ctx, k, other, frame.New(h, body), time.Hour)
	if err != nil || ans != cacheguard.FillStored {
		t.Fatalf("the other one's fill: %v, %v", ans, err)
	}
	mine.got(t, "new")
	if took := time.Since(ended); took > 2*soon {
		t.Errorf("callers had the other load's result %v after its end: not by message", took)
	}
	f.hits(t, "k", "new")
	for kind, want := range map[cacheguard.EventKind]int{
		cacheguard.EventFilled: 0, cacheguard.EventFillRefused: 0, cacheguard.EventLeaseLost: 1,
	} {
		if n := f.first.events.of(kind); n != want {
			t.Errorf("event %v was seen %d times; want %d", kind, n, want)
		}
	}
	figures(t, "renewal says not yours (normal: load cancelled)", 1, noticed, mine.answers...)
}
