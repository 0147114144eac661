package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
)

// deaf has all questions for one lock fail, as those to a master that refuses connections do.
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

// Many locks that are renewed or given back while most masters are silent don't wait for these one after another, nor do they
// come to the others all at once. When the silence is over in time nothing was lost.
func TestManyWhileMostAreSilent(t *testing.T) { // not parallel: it looks at all goroutines
	const n, most = 200, 16
	for what, script := range map[string]string{"release": redlock.ReleaseScript, "renewal": redlock.RenewScript} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t)
			hash, open, gate := redis.NewScript(script).Hash(), make(chan struct{}), make(chan struct{})
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
			o := opts()
			o.Lease = 12 * time.Second
			l, err := redlock.New(masters, o)
			must(t, err)
			t.Cleanup(func() { speak(); must(t, l.Close()) })
			l.SetNodeTimeout(patience)
			var held []lock.Lock
			for i := range n {
				held = append(held, get(t, l, fmt.Sprint(i)))
			}
			await(t, "all masters have answered", func() bool { return working() == 0 }) // a late answer would be the end of a silence
			before := seen[0].seen.Load() + seen[1].seen.Load()
			_, err = l.TryLock(t.Context(), "refused")
			says(t, err, "dial: refused")
			await(t, "what it was given is given back", func() bool { // which is no part of what is counted below
				return what != "release" || seen[0].seen.Load()+seen[1].seen.Load() == before+2 && seen[0].under.Load()+seen[1].under.Load() == 0
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
			await(t, "those that answer were asked for all", func() bool {
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
