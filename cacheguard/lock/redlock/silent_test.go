package redlock_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// deaf makes all requests for one lock fail, like requests to a master that refuses connections.
type deaf struct {
	redis.Hook
	key string
}

func (d *deaf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any(d.key)) {
			err := &net.OpError{Op: "dial", Err: errors.New("refused")}
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// failing makes the requests for one lock fail as soon as the gate is open.
type failing struct {
	redis.Hook
	key         string
	asked, gate chan struct{}
}

func (f *failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !slices.Contains(cmd.Args(), any(f.key)) {
			return next(ctx, cmd)
		}
		f.asked <- struct{}{}
		<-f.gate
		err := &net.OpError{Op: "dial", Err: errors.New("refused")}
		cmd.SetErr(err)
		return err
	}
}

// If a master has replied to a later request, the failure of an earlier request doesn't make it
// silent. If the master were called silent, the limit on the number of running requests would not
// apply, and thousands of locks would prevent each other's renewal.
func TestSilentOnlyWithoutLaterAnswers(t *testing.T) {
	t.Parallel()
	for what, answered := range map[string]bool{"answers since": true, "no answer since": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			var masters []redis.UniversalClient
			for _, server := range s.servers[:3] {
				masters = append(masters, newClient(t, server.Addr()))
			}
			f := &failing{
				Hook: &gated{}, key: prefix + ":fails", asked: make(chan struct{}, 1),
				gate: make(chan struct{}),
			}
			masters[0].(*redis.Client).AddHook(f)
			l, err := redlock.New(masters, opts())
			must(t, err)
			l.SetNodeTimeout(patience)
			// Until master 0 has replied, too, because neither call waits for its reply.
			use := func(name string) {
				before := l.Answers(0)
				must(t, get(t, l, name).Unlock(t.Context()))
				waittest.Until(t, "it answers", func() bool { return l.Answers(0) == before+2 })
			}
			use("k") // the first call waits for all masters
			held := get(t, l, "fails")
			<-f.asked
			if answered {
				use("another")
			}
			close(f.gate)
			must(t, held.Unlock(t.Context()))
			must(t, l.Close()) // waits for all replies
			if silent := slices.Contains(l.Silent(), 0); silent == answered {
				t.Errorf("the master is called silent: %v", silent)
			}
		})
	}
}

// If many locks are renewed or given back while most masters are silent, they don't wait for the
// silent masters one after another, and they don't reach the other masters all at once. If the
// silence ends in time, no lock is lost.
func TestManyWhileMostAreSilent(t *testing.T) { // not parallel: it looks at all goroutines
	const n, most = 200, 16
	for what, script := range map[string]string{
		"release": redlock.ReleaseScript, "renewal": redlock.RenewScript,
	} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t)
			hash, open, gate := redis.NewScript(script).Hash(), make(chan struct{}),
				make(chan struct{})
			close(open)
			speak := sync.OnceFunc(func() { close(gate) })
			var masters []redis.UniversalClient
			var seen []*gated
			for i, server := range s.servers {
				c, g := newClient(t, server.Addr()), &gated{hash: hash, gate: open}
				if i >= 2 {
					g.gate = gate
					c.AddHook(&deaf{g, prefix + ":refused"})
				}
				c.AddHook(g)
				masters, seen = append(masters, c), append(seen, g)
			}
			// On a busy machine the locks below take some seconds. None may be renewed before the
			// masters are silent.
			o := leased(45 * time.Second)
			l, err := redlock.New(masters, o)
			must(t, err)
			t.Cleanup(func() { speak(); must(t, l.Close()) })
			l.SetNodeTimeout(3 * patience) // no request may end before the masters speak
			held := getMany(t, l, n)
			// A late reply would end the silence.
			waittest.Until(t, "all masters have answered", func() bool { return working() == 0 })
			before := seen[0].seen.Load() + seen[1].seen.Load()
			_, err = l.TryLock(t.Context(), "refused")
			says(t, err, "dial: refused")
			// These releases aren't part of the count below.
			waittest.Until(t, "what it was given is given back", func() bool {
				return what != "release" ||
					seen[0].seen.Load()+seen[1].seen.Load() == before+2 &&
						seen[0].under.Load()+seen[1].under.Load() == 0
			})

			if silent := l.Silent(); !slices.Equal(silent, []int{2, 3, 4}) {
				t.Fatalf("the masters %v are silent", silent)
			}
			before = seen[0].seen.Load()
			done := make(chan error, n)
			for _, h := range held {
				if what == "release" {
					go func() { done <- h.Unlock(context.Background()) }()
				}
			}
			waittest.Until(t, "those that answer were asked for all", func() bool {
				return seen[0].seen.Load() >= before+n && seen[1].seen.Load() >= before+n
			})

			for _, g := range seen[:2] {
				if peak := g.peak.Load(); peak > most {
					t.Errorf("up to %d were under way at once; want %d at most", peak, most)
				}
			}
			if len(done) > 0 {
				t.Errorf("%d have an answer without a majority, the first %v", len(done), <-done)
			}
			speak()
			for _, h := range held {
				if what == "release" {
					must(t, <-done)
				} else {
					must(t, h.Err())
				}
			}
		})
	}
}

// While all masters are silent, only a limited number of requests wait for them at once. More
// requests would be too slow for a reply afterwards.
func TestManyWhileAllAreSilent(t *testing.T) { // not parallel: it looks at all goroutines
	const n, most = 400, 16 + 256
	s := newSite(t)
	gate := make(chan struct{})
	speak := sync.OnceFunc(func() { close(gate) })
	var masters []redis.UniversalClient
	var seen []*gated
	for _, server := range s.servers[:3] {
		c, g := newClient(t, server.Addr()), &gated{
			hash: redis.NewScript(redlock.ReleaseScript).Hash(), gate: gate,
		}
		c.AddHook(&deaf{g, prefix + ":refused"})
		c.AddHook(g)
		masters, seen = append(masters, c), append(seen, g)
	}
	o := leased(time.Hour)
	l, err := redlock.New(masters, o)
	must(t, err)
	t.Cleanup(func() { speak(); must(t, l.Close()) })
	l.SetNodeTimeout(15 * patience) // no request may end before the masters speak
	held := getMany(t, l, n)
	waittest.Until(t, "all masters have answered", func() bool { return working() == 0 })
	_, err = l.TryLock(t.Context(), "refused")
	says(t, err, "dial: refused")
	waittest.Until(t, "all are silent", func() bool {
		return len(l.Silent()) == 3 && working() == 0
	})
	done := make(chan error, n)
	for _, h := range held {
		go func() { done <- h.Unlock(context.Background()) }()
	}
	waittest.Until(t, "as many as may are under way", func() bool {
		return seen[0].under.Load() >= most
	})
	for range 10 {
		must(t, s.direct[0].Ping(t.Context()).Err())
	}
	for _, g := range seen {
		if peak := g.peak.Load(); peak > most {
			t.Errorf("up to %d were under way at once; want %d at most", peak, most)
		}
	}
	speak()
	for range held {
		must(t, <-done)
	}
}
