package coretest_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Callers leave at every half millisecond of every kind of call. No lease, slot or flight is left.
func TestLeavingAtEveryMoment(t *testing.T) {
	type cache = *cacheguard.Cache[string]
	slow := func(ctx context.Context) (string, error) {
		select {
		case <-time.After(3 * time.Millisecond):
			return "v", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	many := func(ctx context.Context, missing []string) (map[string]string, error) {
		v, err := slow(ctx)
		all := map[string]string{}
		for _, key := range missing {
			all[key] = v
		}
		return all, err
	}
	ways := map[string]func(ctx context.Context, c cache){
		"Get":     func(ctx context.Context, c cache) { _, _ = c.Get(ctx, "k", slow) },
		"Refresh": func(ctx context.Context, c cache) { _, _ = c.Refresh(ctx, "k", slow) },
		"Update":  func(ctx context.Context, c cache) { _, _ = c.Update(ctx, "k", slow) },
		"Set":     func(ctx context.Context, c cache) { _ = c.Set(ctx, "k", "v") },
		"GetMany": func(ctx context.Context, c cache) {
			_, _ = c.GetMany(ctx, []string{"k", "l"}, many)
		},
		"private": func(ctx context.Context, c cache) {
			_, _ = c.GetEntry(ctx, "k", func(
				ctx context.Context, _ cacheguard.Result[string],
			) (entry, error) {
				v, err := slow(ctx)
				return entry{Value: v, NoShare: true, TTL: time.Hour}, err
			})
		},
		"nested": func(ctx context.Context, c cache) {
			_, _ = c.Get(ctx, "k", func(ctx context.Context) (string, error) {
				return c.Get(ctx, "l", slow)
			})
		},
	}
	for way, do := range ways {
		for name, opts := range map[string]cacheguard.Options[string]{
			"plain":  {MaxLoads: 1},
			"strong": {StrongReads: true, MaxLoads: 1},
			"soft": {
				TTL: 10 * time.Millisecond, StaleIfError: 20 * time.Millisecond,
				SoftTimeout: 2 * time.Millisecond, MaxLoads: 1,
			},
			"swr": {
				TTL: 10 * time.Millisecond, StaleWhileRevalidate: 20 * time.Millisecond,
				MaxLoads: 1,
			},
			"local":  {Local: cacheguard.Local[string]{Entries: 10}, EarlyRefresh: 1, MaxLoads: 1},
			"shadow": {Switch: switched(t, cacheguard.ModeShadow), MaxLoads: 1},
			"off":    {Switch: switched(t, cacheguard.ModeOff), MaxLoads: 1},
		} {
			for _, token := range []bool{false, true} {
				what := way + "/" + name
				if token {
					what += "/token"
				}
				inBubble(t, what, func(t *testing.T) {
					store := newTampered()
					for _, step := range []string{
						"Get", "GetMany", "Lease", "LeaseMany", "Fill", "Conclude", "Renew",
						"Release", "Claim", "Invalidate", "Clock",
					} {
						store.onto(step, func(context.Context) error {
							time.Sleep(time.Millisecond)
							return nil
						})
						store.past(step, func(context.Context) error {
							time.Sleep(time.Millisecond)
							return nil
						})
					}
					opts := opts
					opts.LeaseTTL, opts.LoadTimeout, opts.ErrorTTL = time.Hour, 2*time.Hour, -1
					c := openOn(t, cacheguard.Store(store), opts)
					other := openOn(t, cacheguard.Store(store), opts)
					for n := range 50 {
						var calls sync.WaitGroup
						for i, at := range []cache{c, c, other} {
							ctx, leave := context.WithCancel(t.Context())
							if token {
								made, _ := cacheguard.Committed(t.Context(), store, "behave")
								ctx = cacheguard.NotOlderThan(ctx, made)
							}
							calls.Go(func() {
								defer leave()
								time.Sleep(time.Duration(i*n%7) * time.Millisecond / 2)
								time.AfterFunc(time.Duration(n)*time.Millisecond/2+
									100*time.Microsecond, leave)
								do(ctx, at)
							})
						}
						began := time.Now()
						calls.Wait()
						if took := time.Since(began); took > time.Minute {
							t.Errorf("leaving after %d half milliseconds: %v", n, took)
						}
						time.Sleep(time.Second)
						synctest.Wait()
						for _, key := range []string{"k", "l"} {
							if !leaseFree(t, store.Store, key) {
								t.Fatalf("leaving after %d half milliseconds: the lease of %s is left",
									n, key)
							}
						}
						for _, c := range []cache{c, other} {
							if s := c.Stats(); s.Flights+s.Callers+s.LoadsQueued+
								s.LoadsRunning != 0 {
								t.Fatalf("leaving after %d half milliseconds: %+v", n, s)
							}
						}
						if n%3 == 0 {
							must(t, c.Invalidate(t.Context(), "k", "l"))
						}
					}
				})
			}
		}
	}
}

// A caller whose context lives never gets an error because of another caller or a lost lease.
func TestNoForeignErrors(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store := newTampered()
		opts := cacheguard.Options[string]{
			MaxLoads: 1, LeaseTTL: 300 * time.Millisecond, ErrorTTL: -1,
		}
		a, b := openOn(t, cacheguard.Store(store), opts), openOn(t, cacheguard.Store(store), opts)
		var bad sync.Map
		var calls sync.WaitGroup
		for n := range 30 {
			for i, c := range []*cacheguard.Cache[string]{a, b} {
				calls.Go(func() {
					for m := range 30 {
						ctx, leave := context.WithCancel(t.Context())
						quits := (n+m)%3 == 0
						if quits {
							time.AfterFunc(time.Duration(n+m)*time.Millisecond/3, leave)
						}
						_, err := c.Get(ctx, "k", func(ctx context.Context) (string, error) {
							select {
							case <-ctx.Done():
								return "", context.Cause(ctx)
							case <-time.After(5 * time.Millisecond):
								return "v", nil
							}
						})
						if err != nil && !quits {
							bad.Store(err.Error(), true)
						}
						leave()
						if (n+i+m)%4 == 0 {
							_ = c.Invalidate(t.Context(), "k")
						}
					}
				})
			}
		}
		calls.Wait()
		bad.Range(func(err, _ any) bool {
			if !strings.Contains(err.(string), "overloaded") {
				t.Errorf("a caller that waits got %v", err)
			}
			return true
		})
	})
}
