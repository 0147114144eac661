package redlock

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// The validity of a renewal counts from before its request, however long the replies take.
func TestRenewalCountsFromItsQuestion(t *testing.T) {
	t.Parallel()
	var masters []redis.UniversalClient
	var proxies []*redistest.Proxy
	for range 3 {
		p := redistest.StartProxy(t, redistest.Start(t).Addr())
		c := redis.NewClient(&redis.Options{
			Addr: p.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1,
		})
		t.Cleanup(func() { _ = c.Close() })
		masters, proxies = append(masters, c), append(proxies, p)
	}
	l, err := New(masters, Options{
		Lease: 10 * time.Minute, NodeTimeout: time.Minute, // for a first request on a busy machine
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c := l.claim("k")
	if votes := c.acquire(context.Background(), wish{}); !votes.won() {
		t.Fatal(votes.trouble())
	}
	gate := make(chan struct{})
	var late []*redistest.Fault
	for _, p := range proxies {
		late = append(late, p.DelayReply(redistest.IsEval(renewLua), gate))
	}
	asked := make(chan time.Time, 1)
	go func() {
		for _, f := range late {
			<-f.Struck()
		}
		asked <- time.Now()
		close(gate)
	}()
	until, held, err := c.renew(context.Background())
	if !held || err != nil {
		t.Fatal(held, err)
	}
	if latest := (<-asked).Add(l.opts.validity()); until.After(latest) {
		t.Errorf("it is held for %v too long", until.Sub(latest))
	}
	if err := c.release(context.Background()); err != nil {
		t.Error(err)
	}
}
