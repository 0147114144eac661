package guardtest_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// silent are options of a cache that logs nothing.
func silent() cacheguard.Options[string] {
	return cacheguard.Options[string]{Logger: slog.New(slog.DiscardHandler)}
}

func TestStampede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := guardtest.NewOrigin(t, shout)
		o.Inject(guardtest.Fault{Takes: 50 * time.Millisecond})
		fleet := guardtest.NewFleet(t, 4, cacheguard.Options[string]{})
		answers := fleet.Stampede(t.Context(), "k", 25, o.Load("k"))
		if err := answers.Err(); err != nil {
			t.Error(err)
		}
		for i, a := range answers {
			if a.Replica != i/25 || a.Result.Value != "k!" || a.Took != 50*time.Millisecond {
				t.Errorf("caller %d: %+v", i, a)
			}
		}
		if n, m := answers.Count(cacheguard.StatusLoaded),
			answers.Count(cacheguard.StatusCoalesced); n != 1 || m != 99 || o.Loads() != 1 {
			t.Errorf("%d callers loaded, %d waited, %d loads; want 1, 99, 1", n, m, o.Loads())
		}
		if n := fleet.Stampede(t.Context(), "k", 1,
			o.Load("k")).Count(cacheguard.StatusHit); n != 4 || o.Loads() != 1 {
			t.Errorf("%d hits afterwards, %d loads", n, o.Loads())
		}
	})
}

func TestStampedeThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := guardtest.NewOrigin(t, shout)
		o.Inject(guardtest.Fault{Takes: time.Second, Err: errDown})
		answers := guardtest.NewFleet(t, 2, silent()).Stampede(t.Context(), "k", 3, o.Load("k"))
		err := answers.Err()
		if err == nil || !strings.Contains(err.Error(), "6 of 6 callers failed, the first with: ") {
			t.Errorf("got %v", err)
		}
		here, elsewhere := 0, 0
		for _, a := range answers {
			if remote := (*cacheguard.LoadError)(nil); errors.Is(a.Err, errDown) {
				here++
			} else if errors.As(a.Err, &remote) {
				elsewhere++
			}
		}
		if here != 3 || elsewhere != 3 {
			t.Errorf("%d errors from here, %d from elsewhere: %v", here, elsewhere, err)
		}
		for status := cacheguard.StatusMiss; status <= cacheguard.StatusCoalesced; status++ {
			if n := answers.Count(status); n != 0 {
				t.Errorf("%d callers are counted as %q; want none", n, status)
			}
		}
	})
}

// All calls are made at once: the first one only when all goroutines are there.
func TestTogether(t *testing.T) {
	const n = 200
	var met sync.WaitGroup
	met.Add(n)
	calls, goroutines := make([]int, n), make([]int, n)
	guardtest.Together(t, n, func(i int) {
		calls[i]++
		goroutines[i] = runtime.NumGoroutine()
		met.Done()
		met.Wait() // for ever, if one of them is not called before another has returned
	})
	for i := range n {
		if calls[i] != 1 || goroutines[i] < n {
			t.Errorf("call %d was made %d times, with %d goroutines", i, calls[i], goroutines[i])
		}
	}
}

// Replicas learn of each other's changes by message. While messages are held back, they have the
// old value.
func TestReplicasHearOfEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := guardtest.NewOrigin(t, shout)
		opts := cacheguard.Options[string]{Local: cacheguard.Local[string]{Entries: 10}}
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		deaf := &deafStore{Store: shared}
		fleet := guardtest.NewFleet(t, 3, opts, shared, shared, deaf)
		for range 2 {
			fleet.Stampede(t.Context(), "k", 1, o.Load("k"))
		}
		o.Set("k", "new")
		if err := fleet.Replica(0).Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"new", "new", "k!"} {
			if v, err := fleet.Replica(i).Get(t.Context(), "k", o.Load("k")); v != want ||
				err != nil {
				t.Errorf("replica %d: %q, %v; want %q", i, v, err, want)
			}
		}
	})
}

// deafStore has no messages of changes.
type deafStore struct{ cacheguard.Store }

func (s *deafStore) Listen(cache string, tell func(cacheguard.Message)) func() {
	return s.Store.Listen(cache, func(m cacheguard.Message) {
		if m.Kind != cacheguard.MessageChanged {
			tell(m)
		}
	})
}

func TestFleetOnStores(t *testing.T) {
	one, other := memstore.New(memstore.Options{}), memstore.New(memstore.Options{})
	defer one.Close()
	defer other.Close()
	o := guardtest.NewOrigin(t, shout)
	f := asTest(func(tb testing.TB) {
		together := guardtest.NewFleet(tb, 3, silent(), one)
		if err := together.Stampede(t.Context(), "k", 2, o.Load("k")).Err(); err != nil ||
			o.Loads() != 1 {
			t.Errorf("on one store: %v, %d loads; want 1", err, o.Loads())
		}
		apart := guardtest.NewFleet(tb, 2, silent(), one, other)
		if err := apart.Stampede(t.Context(), "k", 2, o.Load("k")).Err(); err != nil ||
			o.Loads() != 2 {
			t.Errorf("on two stores: %v, %d loads; want one more, for the second store", err,
				o.Loads())
		}
	})
	f.goesWell(t)
	if !one.Listening() || !other.Listening() {
		t.Error("the fleet has closed a store that isn't its own")
	}
}

// At the end of its test the fleet is closed.
func TestFleetEndsWithItsTest(t *testing.T) {
	var c *cacheguard.Cache[string]
	f := asTest(func(tb testing.TB) {
		fleet := guardtest.NewFleet(tb, 2, silent())
		if c = fleet.Replica(1); c == fleet.Replica(0) {
			t.Error("two replicas are one cache")
		}
		_ = fleet.Replica(0).Close()
	})
	f.goesWell(t)
	if _, err := c.Peek(t.Context(), "k"); !errors.Is(err, cacheguard.ErrClosed) {
		t.Errorf("got %v; want %v", err, cacheguard.ErrClosed)
	}
}

func TestFleetReportsStubbornLoads(t *testing.T) {
	for name, logger := range map[string]*slog.Logger{
		"to the test": nil, "silent": slog.New(slog.DiscardHandler),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := guardtest.NewOrigin(t, shout)
				o.Inject(guardtest.Fault{IgnoreContext: true, Takes: time.Hour})
				f := asTest(func(tb testing.TB) {
					fleet := guardtest.NewFleet(tb, 3, cacheguard.Options[string]{Logger: logger})
					ctx, leave := context.WithTimeout(t.Context(), time.Second)
					defer leave()
					if _, err := fleet.Replica(1).Get(ctx, "k", o.Load("k")); !errors.Is(err,
						context.DeadlineExceeded) {
						t.Errorf("got %v", err)
					}
				})
				if len(f.errors) != 1 ||
					!strings.Contains(f.errors[0],
						"replica 1 was closed while a load that ignores its context still ran") {
					t.Errorf("it said %q, %q", f.fatal, f.errors)
				}
				if said := len(f.logged); (said == 1) != (logger == nil) {
					t.Errorf("logged: %q", f.logged)
				}
			})
		})
	}
}

// If a load obeys its context, the test doesn't fail, even if the load would take long.
func TestFleetEndsLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asTest(func(tb testing.TB) {
			o := guardtest.NewOrigin(tb, shout)
			o.Inject(guardtest.Fault{Takes: time.Hour})
			fleet := guardtest.NewFleet(tb, 1, cacheguard.Options[string]{})
			go func() { _, _ = fleet.Replica(0).Get(context.Background(), "k", o.Load("k")) }()
			o.Await(1)
		}).goesWell(t)
	})
}

// The caches' log goes to the test, with the replica's number, or where the options say.
func TestFleetLogs(t *testing.T) {
	store := memstore.New(memstore.Options{})
	_ = store.Close() // which is worth a line
	var own bytes.Buffer
	o := guardtest.NewOrigin(t, shout)
	for _, c := range []struct {
		logger *slog.Logger
		read   func(f *fakeTB) string
	}{
		{nil, func(f *fakeTB) string { return strings.Join(f.logged, "\n") }},
		{slog.New(slog.NewTextHandler(&own, nil)).WithGroup("shop"), func(*fakeTB) string {
			return own.String()
		}},
		{slog.New(slog.NewTextHandler(&own, nil)), func(*fakeTB) string { return own.String() }},
	} {
		own.Reset()
		f := asTest(func(tb testing.TB) {
			fleet := guardtest.NewFleet(tb, 2, cacheguard.Options[string]{Logger: c.logger}, store)
			if v, err := fleet.Replica(1).Get(t.Context(), "k", o.Load("k")); v != "k!" ||
				err != nil {
				t.Errorf("got %q, %v", v, err)
			}
		})
		f.goesWell(t)
		if said := c.read(f); !strings.Contains(said, "replica=1") ||
			!strings.Contains(said, "cache=guardtest") && c.logger == nil {
			t.Errorf("logged: %q", said)
		}
	}
}

// A line that is logged after the end of its test is dropped, because testing.T would panic.
func TestFleetIsQuietAfterItsTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logger *slog.Logger
		f := asTest(func(tb testing.TB) {
			log := guardtest.NewTestLog(tb)
			logger = slog.New(slog.NewTextHandler(log, nil))
			logger.Info("one")
		})
		logger.Info("two")
		if len(f.logged) != 1 || !strings.Contains(f.logged[0], "msg=one") {
			t.Errorf("logged: %q", f.logged)
		}
	})
}

func TestFleetMisused(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	load := guardtest.NewOrigin(t, shout).Load("k")
	for want, do := range map[string]func(tb testing.TB){
		"NewFleet: 0 replicas": func(tb testing.TB) { guardtest.NewFleet(tb, 0, silent()) },
		"NewFleet: -1 replicas": func(tb testing.TB) {
			guardtest.NewFleet(tb, -1, silent())
		},
		"2 stores for 3 replicas": func(tb testing.TB) {
			guardtest.NewFleet(tb, 3, silent(), store, store)
		},
		"2 stores for 1 replicas": func(tb testing.TB) {
			guardtest.NewFleet(tb, 1, silent(), store, store)
		},
		"the store is nil": func(tb testing.TB) {
			guardtest.NewFleet(tb, 1, silent(), nil)
		},
		"TTL is": func(tb testing.TB) {
			guardtest.NewFleet(tb, 1, cacheguard.Options[string]{TTL: -1})
		},
		"Replica(2) of a fleet of 2": func(tb testing.TB) {
			guardtest.NewFleet(tb, 2, silent()).Replica(2)
		},
		"Replica(-1) of a fleet": func(tb testing.TB) {
			guardtest.NewFleet(tb, 2, silent()).Replica(-1)
		},
		"0 callers on each replica": func(tb testing.TB) {
			guardtest.NewFleet(tb, 2, silent()).Stampede(t.Context(), "k", 0, load)
		},
		"Stampede: the load is nil": func(tb testing.TB) {
			guardtest.NewFleet(tb, 2, silent()).Stampede(t.Context(), "k", 1, nil)
		},
		"Together: 0 calls": func(tb testing.TB) {
			guardtest.Together(tb, 0, func(int) {})
		},
		"Together: the call is nil": func(tb testing.TB) { guardtest.Together(tb, 1, nil) },
		"EarlyRefresh is NaN, it must": func(tb testing.TB) {
			guardtest.NewFleet(tb, 1, notANumber())
		},
	} {
		asTest(do).diesWith(t, want)
	}
}

func notANumber() cacheguard.Options[string] {
	opts, zero := silent(), 0.0
	opts.EarlyRefresh = zero / zero
	return opts
}

// A gate that is never opened ends a stampede: at LoadTimeout or, where that is later, after a
// minute.
func TestStampedeAtAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := asTest(func(tb testing.TB) {
			o := guardtest.NewOrigin(tb, shout)
			o.Hold()
			err := guardtest.NewFleet(tb, 2, silent()).Stampede(t.Context(), "k", 2,
				o.Load("k")).Err()
			if err == nil || !strings.Contains(err.Error(), "LoadTimeout") {
				t.Errorf("got %v", err)
			}
		})
		f.goesWell(t)
		if len(f.logged) != 1 || !strings.Contains(f.logged[0], "never opened") ||
			time.Since(began) != 30*time.Second {
			t.Errorf("logged after %v: %q", time.Since(began), f.logged)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		asTest(func(tb testing.TB) {
			o := guardtest.NewOrigin(tb, shout)
			o.Hold()
			opts := silent()
			opts.LoadTimeout = time.Hour
			guardtest.NewFleet(tb, 2, opts).Stampede(t.Context(), "k", 2, o.Load("k"))
		}).diesWith(t, `4 of 4 callers had no answer for "k" within 1m0s`)
	})
}

// A context's own deadline takes the minute's place, be it shorter or longer.
func TestStampedeWithADeadline(t *testing.T) {
	for _, bound := range []time.Duration{time.Second, 10 * time.Minute} {
		t.Run(bound.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), bound)
				defer cancel()
				opts := silent()
				opts.LoadTimeout = time.Hour
				asTest(func(tb testing.TB) {
					o := guardtest.NewOrigin(tb, shout)
					o.Hold()
					for _, a := range guardtest.NewFleet(tb, 2, opts).Stampede(ctx, "k", 2,
						o.Load("k")) {
						if a.Err != context.DeadlineExceeded || a.Took != bound {
							t.Errorf("got %v after %v", a.Err, a.Took)
						}
					}
				}).goesWell(t)
			})
		})
	}
}

func TestCallsThatDontReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		asTest(func(tb testing.TB) {
			guardtest.Together(tb, 5, func(i int) {
				if i > 1 {
					<-end
				}
			})
		}).diesWith(t, "3 of 5 calls have not returned after 1m5s")
		close(end)
	})
}
