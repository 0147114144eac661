package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// A read with a token returns no value whose load had begun when the token was made, even if the
// cache was not told of the change.

// committed is what a writer has after its commit.
func committed(t *testing.T, store cacheguard.Store, caches ...string) cacheguard.Token {
	t.Helper()
	token, err := cacheguard.Committed(t.Context(), store, caches...)
	if err != nil || token == (cacheguard.Token{}) {
		t.Fatalf("Committed: %v, %v", token, err)
	}
	return token
}

// tokenAt returns a made-up token.
func tokenAt(t *testing.T, at time.Time) cacheguard.Token {
	t.Helper()
	token, err := cacheguard.ParseToken(strconv.FormatInt(at.UnixMicro(), 36))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// tokenWays are the ways to read with a token: those of nestedWays, and the others.
var tokenWays = map[string]func(context.Context, *cacheguard.Cache[int],
	cacheguard.LoadFunc[int]) (int, error){
	"Get":     nestedWays["Get"],
	"GetMany": nestedWays["GetMany"],
	"Refresh": nestedWays["Refresh"],
	"GetEntry": func(
		ctx context.Context, c *cacheguard.Cache[int], load cacheguard.LoadFunc[int],
	) (int, error) {
		res, err := c.GetEntry(ctx, "part", func(
			ctx context.Context, _ cacheguard.Result[int],
		) (cacheguard.Entry[int], error) {
			v, err := load(ctx)
			return cacheguard.Entry[int]{Value: v}, err
		})
		return res.Value, err
	},
	"GetManyEntries": func(
		ctx context.Context, c *cacheguard.Cache[int], load cacheguard.LoadFunc[int],
	) (int, error) {
		got, err := c.GetManyEntries(ctx, []string{"part"}, func(
			ctx context.Context, _ []string,
		) (map[string]cacheguard.Entry[int], error) {
			v, err := load(ctx)
			return map[string]cacheguard.Entry[int]{"part": {Value: v}}, err
		})
		return got["part"].Value, err
	},
}

func TestReadsWithAToken(t *testing.T) {
	options := map[string]cacheguard.Options[int]{
		"plain":        {},
		"strong":       {StrongReads: true},
		"local":        {Local: cacheguard.Local[int]{Entries: 10}},
		"soft timeout": {SoftTimeout: time.Millisecond, StaleIfError: time.Hour},
		"stale":        {TTL: time.Millisecond, StaleWhileRevalidate: time.Hour},
	}
	for way, read := range tokenWays {
		for name, opts := range options {
			if way == "Refresh" && name != "plain" {
				continue
			}
			inBubble(t, way+"/"+name, func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				defer store.Close()
				c, other := openOn(t, cacheguard.Store(store), opts),
					openOn(t, cacheguard.Store(store), opts)
				for _, c := range []*cacheguard.Cache[int]{other, c} {
					if v, err := read(t.Context(), c, returning(1)); v != 1 || err != nil {
						t.Fatal(v, err)
					}
				}
				time.Sleep(10 * time.Millisecond)

				// Five callers with tokens have one load, and those without don't notice.
				token := committed(t, store, "behave")
				ctx := cacheguard.NotOlderThan(t.Context(), token)
				o := newScriptedOrigin[int](t)
				var reads []*begun[int]
				for range 5 {
					reads = append(reads,
						beginCall(t, func() (int, error) { return read(ctx, c, o.load) }))
				}
				load := o.next()
				reads[4].waits()
				if way != "Refresh" {
					beginCall(t, func() (int, error) {
						return read(t.Context(), c, o.load)
					}).gives(1, nil)
					beginCall(t, func() (int, error) {
						return read(t.Context(), other, o.load)
					}).gives(1, nil)
				}
				load.gives(2)
				switch name {
				case "stale": // which is refreshed behind those who took it
				case "strong": // those who came when it had begun have one more
					synctest.Wait()
					if len(o.visits) > 0 {
						o.next().gives(2)
					}
					o.idle()
				default:
					o.loads(1)
				}
				for _, r := range reads {
					r.gives(2, nil)
				}
				if way != "Refresh" { // what was loaded will do for the next ones, in any process
					for _, c := range []*cacheguard.Cache[int]{c, other} {
						beginCall(t, func() (int, error) {
							return read(ctx, c, failingWith[int](errors.New("loaded once more")))
						}).gives(2, nil)
					}
				}
			})
		}
	}
}

// A load that was under way when the token was made doesn't count, whoever waits for it: in this
// process or in another one.
func TestTokenMeetsALoad(t *testing.T) {
	for way, read := range tokenWays {
		for where, same := range map[string]bool{"same process": true, "another process": false} {
			inBubble(t, way+"/"+where, func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				defer store.Close()
				c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{})
				from := c
				if !same {
					from = openOn(t, cacheguard.Store(store), cacheguard.Options[int]{})
				}
				o := newScriptedOrigin[int](t)
				early := beginCall(t, func() (int, error) {
					return read(t.Context(), from, o.load)
				})
				load := o.next()
				ctx := cacheguard.NotOlderThan(t.Context(), committed(t, store, "behave"))
				late := []*begun[int]{
					beginCall(t, func() (int, error) { return read(ctx, c, o.load) }),
					beginCall(t, func() (int, error) { return read(ctx, c, o.load) }),
				}
				late[1].waits()
				load.gives(1)
				early.gives(1, nil)
				o.next().gives(2)
				for _, l := range late {
					l.gives(2, nil)
				}
				o.loads(2)
			})
		}
	}
}

// What is too old is not served in place of an error.
func TestTokenAndAFailingLoad(t *testing.T) {
	for way, read := range tokenWays {
		inBubble(t, way, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			defer store.Close()
			c := openOn(t, cacheguard.Store(store),
				cacheguard.Options[int]{StaleIfError: time.Hour, StaleWhileRevalidate: time.Minute})
			must(t, c.Set(t.Context(), "part", 1))
			ctx := cacheguard.NotOlderThan(t.Context(), committed(t, store, "behave"))
			broken := errors.New("broken")
			beginCall(t, func() (int, error) {
				return read(ctx, c, failingWith[int](broken))
			}).gives(0, broken)
			// nor is the origin asked again meanwhile
			beginCall(t, func() (int, error) { return read(ctx, c, returning(2)) }).gives(0, broken)
		})
	}
}

// "Does not exist" is a value like others.
func TestTokenAndWhatDoesNotExist(t *testing.T) {
	inBubble(t, "null", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{})
		getting(t.Context(), t, c, "k", failingWith[int](cacheguard.ErrNotFound)).gives(0,
			cacheguard.ErrNotFound)
		ctx := cacheguard.NotOlderThan(t.Context(), committed(t, store, "behave"))
		getting(ctx, t, c, "k", returning(1)).gives(1, nil)
		ctx = cacheguard.NotOlderThan(t.Context(), committed(t, store, "behave"))
		getting(ctx, t, c, "k", failingWith[int](cacheguard.ErrNotFound)).gives(0,
			cacheguard.ErrNotFound)
		getting(ctx, t, c, "k", returning(2)).gives(0, cacheguard.ErrNotFound)
	})
}

func TestPeekWithAToken(t *testing.T) {
	for name, local := range map[string]int{"store": 0, "local": 10} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			defer store.Close()
			c := openOn(t, cacheguard.Store(store),
				cacheguard.Options[int]{Local: cacheguard.Local[int]{Entries: local}})
			getting(t.Context(), t, c, "k", returning(1)).gives(1, nil)
			token := committed(t, store, "behave")
			ctx := cacheguard.NotOlderThan(t.Context(), token)
			if res, err := c.Peek(ctx, "k"); err != nil || res.Status != cacheguard.StatusMiss ||
				res.Value != 0 {
				t.Errorf("before a load: %+v, %v", res, err)
			}
			if res, err := c.Peek(t.Context(), "k"); err != nil || res.Value != 1 ||
				res.NotOlderThan(token) {
				t.Errorf("without a token: %+v, %v", res, err)
			}
			getting(ctx, t, c, "k", returning(2)).gives(2, nil)
			if res, err := c.Peek(ctx, "k"); err != nil || res.Value != 2 ||
				!res.NotOlderThan(token) {
				t.Errorf("after it: %+v, %v", res, err)
			}
			if res, ok := c.Local("k"); ok != (local > 0) || ok && !res.NotOlderThan(token) {
				t.Errorf("Local: %+v, %v", res, ok)
			}
		})
	}
}

// A copy counts as old as the result that it is made from, whether or not that result is stored,
// and so does a copy of an unstored copy. If nobody knows how old the result is, the copy is older
// than each token.
func TestCopiesOfUnstoredResults(t *testing.T) {
	type source func(*testing.T, *cacheguard.Cache[int]) (cacheguard.Result[int], error)
	for name, from := range map[string]source{
		"not stored": func(t *testing.T, c *cacheguard.Cache[int]) (cacheguard.Result[int], error) {
			return c.GetEntry(t.Context(), "source", func(
				context.Context, cacheguard.Result[int],
			) (cacheguard.Entry[int], error) {
				return cacheguard.Entry[int]{Value: 1, NoStore: true}, nil
			})
		},
		"written": func(t *testing.T, c *cacheguard.Cache[int]) (cacheguard.Result[int], error) {
			return c.UpdateEntry(t.Context(), "source", func(
				context.Context,
			) (cacheguard.Entry[int], error) {
				return cacheguard.Entry[int]{Value: 1}, nil
			})
		},
		"a copy of unknown age": func(
			t *testing.T, c *cacheguard.Cache[int],
		) (cacheguard.Result[int], error) {
			return c.GetEntry(t.Context(), "source", func(
				context.Context, cacheguard.Result[int],
			) (cacheguard.Entry[int], error) {
				e := cacheguard.Entry[int]{Value: 1, NoStore: true}
				return e.NotNewerThan(cacheguard.Result[int]{Status: cacheguard.StatusLoaded}), nil
			})
		},
		"of unknown age": func(*testing.T, *cacheguard.Cache[int]) (cacheguard.Result[int], error) {
			return cacheguard.Result[int]{Value: 1, Status: cacheguard.StatusLoaded}, nil
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			defer store.Close()
			c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{})
			found, err := from(t, c)
			must(t, err)
			<-time.After(time.Second)
			ctx := cacheguard.NotOlderThan(t.Context(), committed(t, store, "behave"))
			copied := cacheguard.Entry[int]{Value: found.Value}.NotNewerThan(found)
			for ctx, want := range map[context.Context]int{t.Context(): 1, ctx: 2} {
				must(t, c.Invalidate(t.Context(), "copy"))
				must(t, c.Set(t.Context(), "copy", 3))
				must(t, c.SetEntry(t.Context(), "copy", copied))
				if strings.Contains(name, "unknown") {
					want = 2
				}
				getting(ctx, t, c, "copy", returning(2)).gives(want, nil)
			}
		})
	}
}

// A load that is begun with a token reads with it, too, and what is refreshed behind a caller's
// back doesn't.
func TestTokenInsideALoad(t *testing.T) {
	inBubble(t, "inside", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		parts := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{Name: "parts"})
		wholes := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{Name: "wholes"})
		must(t, parts.Set(t.Context(), "k", 1))
		load := func(ctx context.Context) (int, error) { return parts.Get(ctx, "k", returning(2)) }
		getting(t.Context(), t, wholes, "whole", load).gives(1, nil)
		ctx := cacheguard.NotOlderThan(t.Context(), committed(t, store, "parts", "wholes"))
		getting(ctx, t, wholes, "whole", load).gives(2, nil)
	})
}

// A load that asks for its own key is told so, with a token as without.
func TestTokenAndRecursion(t *testing.T) {
	inBubble(t, "recursion", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{})
		must(t, c.Set(t.Context(), "k", 1))
		ctx := cacheguard.NotOlderThan(t.Context(), committed(t, store, "behave"))
		getting(ctx, t, c, "k", func(ctx context.Context) (int, error) {
			return c.Get(ctx, "k", returning(2))
		}).gives(0, cacheguard.ErrRecursion)
	})
}

// clockStore has a clock that can be away or set back.
type clockStore struct {
	cacheguard.Store
	said int
	err  error
	back time.Duration
}

func (s *clockStore) Clock(ctx context.Context, cache string) (int64, error) {
	s.said++
	if s.err != nil {
		return 0, s.err
	}
	return s.Store.Clock(ctx, cache)
}

func (s *clockStore) Now() time.Time { return s.Store.Now().Add(-s.back) }

// A made-up token with a moment in the future demands nothing. A made-up token with a possible
// moment costs one refresh, which all callers with the same demand share.
func TestMadeUpTokens(t *testing.T) {
	inBubble(t, "made up", func(t *testing.T) {
		store := &clockStore{Store: memstore.New(memstore.Options{})}
		defer store.Store.(*memstore.Store).Close()
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{})
		must(t, c.Set(t.Context(), "k", 1))
		at := func(d time.Duration) context.Context {
			return cacheguard.NotOlderThan(t.Context(), tokenAt(t, store.Store.Now().Add(d)))
		}
		never := failingWith[int](errors.New("loaded"))
		getting(at(-time.Minute), t, c, "k", never).gives(1, nil)
		getting(at(48*time.Hour), t, c, "k", never).gives(1, nil)
		getting(at(10*365*24*time.Hour), t, c, "k", never).gives(1, nil)
		if store.said != 0 {
			t.Errorf("the store was asked for its clock %d times", store.said)
		}
		getting(at(time.Hour), t, c, "k", never).gives(1, nil)
		if store.said != 1 {
			t.Errorf("the store was asked for its clock %d times", store.said)
		}
		// A clock that was set back says so, and then the token counts.
		store.back = 2 * time.Hour
		// The value was made in the future.
		getting(t.Context(), t, c, "k", returning(2)).gives(2, nil)
		getting(at(-time.Hour), t, c, "k", never).gives(2, nil)
		time.Sleep(time.Millisecond)
		getting(at(0), t, c, "k", returning(3)).gives(3, nil)
		store.back = 0
		getting(t.Context(), t, c, "k", returning(1)).now() // that one is old
		// While it can't be asked, too: nothing is served that may be too old.
		store.err = errors.New("away")
		getting(at(time.Hour), t, c, "k", returning(3)).gives(3, nil)
		store.err = nil

		// A flood of tokens from a moment ahead: one load at a time, and two for all who come
		// together.
		o := newScriptedOrigin[int](t)
		for n := range 3 {
			var flood []*begun[int]
			for range 50 {
				flood = append(flood, getting(at(200*time.Millisecond), t, c, "k", o.load))
			}
			o.next().gives(10 * n)
			synctest.Wait()
			if len(o.visits) > 0 {
				o.next().gives(10*n + 1)
			}
			for _, f := range flood {
				if v, err := f.now(); err != nil || v/10 != n {
					t.Errorf("one of the flood got %d, %v", v, err)
				}
			}
			o.idle()
		}
		if v, err := getting(t.Context(), t, c, "k", never).now(); err != nil || v < 20 {
			t.Errorf("after the flood: %d, %v", v, err)
		}
	})
}

func TestCommittedWithoutTheStore(t *testing.T) {
	inBubble(t, "away", func(t *testing.T) {
		memory := memstore.New(memstore.Options{})
		defer memory.Close()
		store := &clockStore{Store: memory, err: errors.New("away")}
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{})
		getting(t.Context(), t, c, "k", returning(1)).gives(1, nil)
		token, err := cacheguard.Committed(t.Context(), store, "behave")
		if !errors.Is(err, store.err) || token == (cacheguard.Token{}) {
			t.Fatalf("%v, %v; want an estimate and the error", token, err)
		}
		ctx := cacheguard.NotOlderThan(t.Context(), token)
		getting(ctx, t, c, "k", returning(2)).gives(2, nil)
		time.Sleep(300 * time.Millisecond)
		getting(ctx, t, c, "k", returning(3)).gives(3, nil) // that was loaded before the estimate
		getting(ctx, t, c, "k", returning(4)).gives(3, nil)

		if _, err := cacheguard.Committed(t.Context(), store); err == nil {
			t.Error("no cache was named, and that is no error")
		}
		if _, err := cacheguard.Committed(t.Context(), nil, "behave"); err == nil {
			t.Error("there is no store, and that is no error")
		}
	})
}

// The later of two tokens counts, whichever came first.
func TestTwoTokens(t *testing.T) {
	inBubble(t, "two", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{})
		early := committed(t, store, "behave")
		must(t, c.Set(t.Context(), "k", 1))
		late := committed(t, store, "behave")
		getting(cacheguard.NotOlderThan(t.Context(), early), t, c, "k", returning(2)).gives(1, nil)
		ctx := cacheguard.NotOlderThan(cacheguard.NotOlderThan(t.Context(), late), early)
		getting(ctx, t, c, "k", returning(2)).gives(2, nil)
		ctx = cacheguard.NotOlderThan(cacheguard.NotOlderThan(t.Context(), early), late)
		getting(ctx, t, c, "k", returning(3)).gives(2, nil)
	})
}

// A made up token, which is in the future, doesn't void another token: whichever came first, and
// for what a load sees and reads, too.
func TestTokenBesideOneOfTheFuture(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, 48 * time.Hour} {
		for _, first := range []string{"made up", "real"} {
			inBubble(t, fmt.Sprint(ahead, ", first the ", first, " one"), func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				defer store.Close()
				c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{TTL: time.Hour})
				must(t, c.Set(t.Context(), "k", 1))
				must(t, c.Set(t.Context(), "inner", 1))
				ctx, madeUp := cacheguard.NotOlderThan(t.Context(), committed(t, store, "behave")),
					tokenAt(t, store.Now().Add(ahead))
				if ctx = cacheguard.NotOlderThan(ctx, madeUp); first == "made up" {
					ctx = cacheguard.NotOlderThan(cacheguard.NotOlderThan(t.Context(), madeUp),
						committed(t, store, "behave"))
				}
				time.Sleep(time.Millisecond)
				res, err := c.GetEntry(ctx, "k", func(
					ctx context.Context, prev cacheguard.Result[int],
				) (cacheguard.Entry[int], error) {
					if prev.Value != 0 {
						t.Errorf("the load sees %d, which is too old", prev.Value)
					}
					inner, err := c.Get(ctx, "inner", returning(2))
					return cacheguard.Entry[int]{Value: inner}, err
				})
				if res.Value != 2 || err != nil {
					t.Errorf("got %d, %v; want 2, from two loads", res.Value, err)
				}
			})
		}
	}
}

// A load of which something newer is demanded doesn't see what is older, so that it can't say that
// this is still good.
func TestDemandedLoadSeesNothingOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{Name: "c"})
		load := func(
			_ context.Context, prev cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{
				Value: "new", NotModified: prev.Status != cacheguard.StatusMiss,
			}, nil
		}
		must(t, c.Set(t.Context(), "k", "old"))
		time.Sleep(time.Second) // in the bubble
		token, err := cacheguard.Committed(t.Context(), store, "c")
		must(t, err)
		if r, err := c.GetEntry(cacheguard.NotOlderThan(t.Context(), token), "k",
			load); r.Value != "new" || err != nil {
			t.Errorf("got %q, %v; the origin has something new", r.Value, err)
		}
		if r, err := c.RefreshEntry(t.Context(), "k", load); r.Value != "new" || err != nil {
			t.Errorf("a refresh of which nothing is demanded: %q, %v", r.Value, err)
		}
	})
}

// tiedStore has a clock that says when the last lease was granted.
type tiedStore struct {
	cacheguard.Store
	stamp int64
}

func (s *tiedStore) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	ans, err := s.Store.Lease(ctx, k, ask)
	s.stamp = ans.Grant.Stamp
	return ans, err
}

func (s *tiedStore) Clock(context.Context, string) (int64, error) { return s.stamp, nil }

// If a load's stamp is a token's moment, it is unknown which came first, and the value counts as
// too old, in the store and in the local tier.
func TestTokenTie(t *testing.T) {
	for name, local := range map[string]cacheguard.Local[int]{"store": {}, "local": {Entries: 10}} {
		inBubble(t, name, func(t *testing.T) {
			store := &tiedStore{Store: memstore.New(memstore.Options{})}
			c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{Local: local})
			time.Sleep(time.Millisecond)
			getting(t.Context(), t, c, "k", returning(1)).gives(1, nil)
			getting(t.Context(), t, c, "k", returning(2)).gives(1, nil)
			token := committed(t, store, "behave")
			if want := tokenAt(t, time.UnixMicro(store.stamp)); token.String() !=
				want.String() {
				t.Fatalf("the token is %v, want %v", token, want)
			}
			getting(cacheguard.NotOlderThan(t.Context(), token), t, c, "k", returning(3)).gives(3,
				nil)
		})
	}
}
