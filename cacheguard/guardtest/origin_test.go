package guardtest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
)

var errDown = errors.New("the database is down")

// shout is the value of a key, until it is changed.
func shout(key string) string { return key + "!" }

// load begins a load on a goroutine of its own.
func load(ctx context.Context, o *guardtest.Origin[string], key string) <-chan error {
	done := make(chan error, 1)
	go func() {
		v, err := o.Load(key)(ctx)
		if err == nil && v != shout(key) {
			err = fmt.Errorf("the load of %q returned %q", key, v)
		}
		done <- err
	}()
	return done
}

func TestOriginCountsLoads(t *testing.T) {
	o := guardtest.NewOrigin(t, shout)
	for _, key := range []string{"a", "b", "a", ""} {
		if v, err := o.Load(key)(t.Context()); v != shout(key) || err != nil {
			t.Errorf("%q: %q, %v", key, v, err)
		}
	}
	e, err := o.LoadEntry("a")(t.Context(), cacheguard.Result[string]{Value: "before"})
	if !reflect.DeepEqual(e, cacheguard.Entry[string]{Value: "a!"}) || err != nil {
		t.Errorf("LoadEntry: %+v, %v", e, err)
	}
	many, err := o.LoadMany(t.Context(), []string{"a", "b", "c"})
	if want := map[string]string{"a": "a!", "b": "b!", "c": "c!"}; !maps.Equal(many, want) ||
		err != nil {
		t.Errorf("LoadMany: %v, %v", many, err)
	}
	for _, c := range []struct {
		what      string
		got, want int
	}{
		{"all", o.Loads(), 6},
		{"a", o.Loads("a"), 4},
		{"b", o.Loads("b"), 2},
		{"b and c", o.Loads("b", "c"), 3},
		{"the empty key", o.Loads(""), 1},
		{"no such key", o.Loads("d"), 0},
		{"running", o.Running(), 0},
		{"at most running", o.MostRunning(), 1},
	} {
		if c.got != c.want {
			t.Errorf("loads, %s: %d; want %d", c.what, c.got, c.want)
		}
	}
}

func TestOriginChanges(t *testing.T) {
	o := guardtest.NewOrigin(t, shout)
	open := o.Hold()
	before := load(t.Context(), o, "a")
	o.Await(1)
	o.Set("a", "new")
	open()
	if err := <-before; err != nil { // it gives what there was when it began
		t.Error(err)
	}
	if v, err := o.Load("a")(t.Context()); v != "new" || err != nil {
		t.Errorf("after Set: %q, %v", v, err)
	}
	if v, err := o.Load("b")(t.Context()); v != "b!" || err != nil {
		t.Errorf("another key: %q, %v", v, err)
	}
	if many, err := o.LoadMany(t.Context(), []string{"a"}); many["a"] != "new" || err != nil {
		t.Errorf("LoadMany after Set: %v, %v", many, err)
	}
}

func TestOriginHoldsLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := guardtest.NewOrigin(t, shout)
		open := o.Hold()
		held := []<-chan error{load(t.Context(), o, "a"), load(t.Context(), o, "b")}
		o.Await(2)
		time.Sleep(time.Hour)
		if n := o.Running(); n != 2 {
			t.Fatalf("%d loads run; want 2, at the gate", n)
		}
		openNext := o.Hold()
		open()
		open()
		later := load(t.Context(), o, "c") // finds the second gate
		o.Await(3)
		synctest.Wait()
		for _, done := range held {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := o.Running(); n != 1 {
			t.Errorf("%d loads run; want 1, at the second gate", n)
		}
		openNext()
		if err := <-later; err != nil {
			t.Error(err)
		}
		if err := <-load(t.Context(), o, "d"); err != nil {
			t.Error(err)
		}
		if n := o.MostRunning(); n != 2 && n != 3 {
			t.Errorf("at most %d loads ran; want 2 or 3", n)
		}
	})
}

// A load ends with its context at each of its steps, unless it ignores its context.
func TestOriginAndContexts(t *testing.T) {
	for _, where := range []string{"at the gate", "in its time", "at its end"} {
		for _, ignore := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ignored %v", where, ignore), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := guardtest.NewOrigin(t, shout)
					f, open := guardtest.Fault{IgnoreContext: ignore}, func() {}
					ctx, cancel := context.WithCancel(t.Context())
					switch where {
					case "at the gate":
						open = o.Hold()
					case "in its time":
						f.Takes = time.Hour
					case "at its end":
						cancel()
					}
					o.Inject(f)
					began := time.Now()
					done := load(ctx, o, "k")
					synctest.Wait()
					cancel()
					synctest.Wait()
					if n := o.Running(); ignore && where != "at its end" && n != 1 {
						t.Errorf("%d loads run; want one that ignores its context", n)
					}
					if ignore {
						open()
						if err := <-done; err != nil {
							t.Errorf("got %v", err)
						}
						if took := time.Since(began); took != f.Takes {
							t.Errorf("it took %v; want %v", took, f.Takes)
						}
						return
					}
					if err := <-done; err != context.Canceled || time.Since(began) != 0 {
						t.Errorf("got %v after %v; want its context's error at once", err,
							time.Since(began))
					}
				})
			})
		}
	}
}

func TestFaultTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := guardtest.NewOrigin(t, shout)
		o.Inject(guardtest.Fault{Takes: time.Minute})
		began := time.Now()
		if err := <-load(t.Context(), o, "k"); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestFaultStrikesSoOften(t *testing.T) {
	o := guardtest.NewOrigin(t, shout)
	o.Inject(guardtest.Fault{Times: 2, Err: errDown})
	for i, want := range []error{errDown, errDown, nil, nil} {
		if err := <-load(t.Context(), o, "k"); err != want {
			t.Errorf("load %d: %v; want %v", i, err, want)
		}
	}
	end := o.Inject(guardtest.Fault{Err: errDown})
	for range 5 {
		if err := <-load(t.Context(), o, "k"); err != errDown {
			t.Errorf("got %v", err)
		}
	}
	end()
	end()
	if err := <-load(t.Context(), o, "k"); err != nil {
		t.Errorf("after its end: %v", err)
	}
}

// Many loads at once share the strikes of a fault exactly.
func TestFaultIsShared(t *testing.T) {
	o := guardtest.NewOrigin(t, shout)
	o.Inject(guardtest.Fault{Times: 10, Err: errDown})
	var mu sync.Mutex
	failed := 0
	guardtest.Together(t, 100, func(i int) {
		if err := <-load(t.Context(), o, fmt.Sprint(i%3)); err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed++
		}
	})
	if failed != 10 || o.Loads() != 100 || o.Loads("0", "1", "2") != 100 {
		t.Errorf("%d of %d loads failed; want 10 of 100", failed, o.Loads())
	}
}

// Loads that are being matched at the same moment share a last strike too.
func TestLastStrike(t *testing.T) {
	o := guardtest.NewOrigin(t, shout)
	var met sync.WaitGroup
	met.Add(2)
	o.Inject(guardtest.Fault{Times: 1, Err: errDown, Match: func(string) bool {
		met.Done()
		met.Wait()
		return true
	}})
	one, other := load(t.Context(), o, "a"), load(t.Context(), o, "b")
	if a, b := <-one, <-other; (a == nil) == (b == nil) {
		t.Errorf("got %v and %v; want one error", a, b)
	}
}

// The fault that was injected last applies to the keys that it selects. For other keys the earlier
// faults apply.
func TestFaultsLieOverEachOther(t *testing.T) {
	errUser := errors.New("no such table: user")
	o := guardtest.NewOrigin(t, shout)
	o.Inject(guardtest.Fault{Err: errDown})
	end := o.Inject(guardtest.Fault{
		Match: func(key string) bool {
			o.Loads() // it may
			return strings.HasPrefix(key, "user:")
		},
		Err: errUser,
	})
	o.Inject(guardtest.Fault{Times: 1})
	for _, c := range []struct {
		key  string
		want error
	}{{"user:1", nil}, {"user:1", errUser}, {"post:1", errDown}, {"user:2", errUser}} {
		if err := <-load(t.Context(), o, c.key); err != c.want {
			t.Errorf("%s: %v; want %v", c.key, err, c.want)
		}
	}
	end()
	if err := <-load(t.Context(), o, "user:1"); err != errDown {
		t.Errorf("got %v", err)
	}
}

func TestFaultPanics(t *testing.T) {
	o := guardtest.NewOrigin(t, shout)
	o.Inject(guardtest.Fault{Times: 1, Panic: errDown})
	func() {
		defer func() {
			if got := recover(); got != any(errDown) {
				t.Errorf("it panicked with %v", got)
			}
		}()
		_, _ = o.Load("k")(t.Context())
	}()
	o.Inject(guardtest.Fault{Times: 1, Goexit: true})
	over, returned := make(chan struct{}), false
	go func() {
		defer close(over)
		_, _ = o.Load("k")(t.Context())
		returned = true
	}()
	<-over
	if returned {
		t.Error("the load returned; want runtime.Goexit")
	}
	if n := o.Running(); n != 0 || o.Loads() != 2 {
		t.Errorf("%d loads run of %d; want none of 2", n, o.Loads())
	}
}

func TestBulkFaults(t *testing.T) {
	o := guardtest.NewOrigin(t, shout)
	isB := func(key string) bool { return key == "b" }
	all := map[string]string{"a": "a!", "b": "b!"}
	for _, c := range []struct {
		name  string
		fault guardtest.Fault
		want  map[string]string
		err   error
	}{
		{"an error", guardtest.Fault{Match: isB, Err: errDown}, nil, errDown},
		{
			"not found",
			guardtest.Fault{Match: isB, Err: fmt.Errorf("no row: %w", cacheguard.ErrNotFound)},
			map[string]string{"a": "a!"}, nil,
		},
		{"nothing found", guardtest.Fault{Err: cacheguard.ErrNotFound}, map[string]string{}, nil},
		{
			"another key",
			guardtest.Fault{Match: func(key string) bool { return key == "c" }, Err: errDown}, all,
			nil,
		},
	} {
		end := o.Inject(c.fault)
		many, err := o.LoadMany(t.Context(), []string{"a", "b"})
		end()
		if !maps.Equal(many, c.want) || (many == nil) != (c.want == nil) || err != c.err {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, many, err, c.want, c.err)
		}
	}

	// Two keys of one query are struck once.
	o.Inject(guardtest.Fault{Times: 2, Err: errDown})
	for i, want := range []error{errDown, errDown, nil} {
		if _, err := o.LoadMany(t.Context(), []string{"a", "b"}); err != want {
			t.Errorf("query %d: %v; want %v", i, err, want)
		}
	}

	// A query whose context ends is no query that found nothing.
	o.Inject(guardtest.Fault{Err: cacheguard.ErrNotFound})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if many, err := o.LoadMany(ctx, []string{"a"}); many != nil || err != context.Canceled {
		t.Errorf("a query without time: %v, %v", many, err)
	}
}

// When Await has counted a load, later changes don't affect it: neither a new value, nor a new
// fault, nor a new gate.
func TestAwaitedLoadsAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reading, matching := make(chan struct{}), make(chan struct{})
		o := guardtest.NewOrigin(t, func(key string) string { <-reading; return shout(key) })
		o.Inject(guardtest.Fault{Match: func(string) bool { <-matching; return false }})
		done := load(t.Context(), o, "k")
		for _, step := range []chan struct{}{matching, reading} {
			synctest.Wait()
			if n := o.Loads(); n != 0 {
				t.Errorf("%d loads have begun, before their fault and value are known", n)
			}
			close(step)
		}
		if err := <-done; err != nil || o.Loads() != 1 {
			t.Errorf("%v, %d loads", err, o.Loads())
		}
	})
}

func TestAwaitFailsClearly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		asTest(func(tb testing.TB) {
			o := guardtest.NewOrigin(tb, shout)
			if err := <-load(t.Context(), o, "k"); err != nil {
				t.Error(err)
			}
			o.Await(3)
		}).diesWith(t, "awaited 3 loads, saw 1", "1m0s")
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it waited for %v", took)
		}
	})
}

func TestGateThatIsNeverOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stuck <-chan error
		f := asTest(func(tb testing.TB) {
			o := guardtest.NewOrigin(tb, shout)
			o.Hold()
			stuck = load(context.Background(), o, "k")
			o.Await(1)
		})
		if len(f.errors) != 1 ||
			!strings.Contains(f.errors[0], `never opened; loads that wait at it: 1, of ["k"]`) {
			t.Errorf("it said %q, %q", f.fatal, f.errors)
		}
		if err := <-stuck; err == nil || !strings.Contains(err.Error(), "the test is over") {
			t.Errorf("the load at the gate returned %v", err)
		}
	})
}

func TestManyKeysAtAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := asTest(func(tb testing.TB) {
			o := guardtest.NewOrigin(tb, shout)
			o.Hold()
			go func() {
				_, _ = o.LoadMany(context.Background(), []string{"1", "2", "3", "4", "5", "6", "7"})
			}()
			o.Await(1)
		})
		if len(f.errors) != 1 ||
			!strings.Contains(f.errors[0], `["1" "2" "3" "4" "5"] and 2 more`) {
			t.Errorf("it said %q", f.errors)
		}
	})
}

// A load that is under way when the test ends, ends with it; else a bubble couldn't.
func TestLoadsEndWithTheirTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var o *guardtest.Origin[string]
		var stubborn <-chan error
		asTest(func(tb testing.TB) {
			o = guardtest.NewOrigin(tb, shout)
			o.Inject(guardtest.Fault{Takes: time.Hour, IgnoreContext: true})
			ctx, cancel := context.WithCancel(t.Context())
			stubborn = load(ctx, o, "k")
			o.Await(1)
			cancel()
		}).goesWell(t)
		if err := <-stubborn; err == nil || time.Since(began) != 0 {
			t.Errorf("it returned %v after %v", err, time.Since(began))
		}
		if err := <-load(t.Context(), o, "k"); err == nil || time.Since(began) != 0 {
			t.Errorf("a load after the test returned %v after %v", err, time.Since(began))
		}
	})
}

// In some tests a load's context ends at its gate. So this is only a hint in the log and not a
// failure.
func TestGateThatNobodyWaitsAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := asTest(func(tb testing.TB) {
			o := guardtest.NewOrigin(tb, shout)
			o.Hold()() // opened
			o.Hold()   // nobody comes
			o.Hold()
			ctx, cancel := context.WithCancel(t.Context())
			done := load(ctx, o, "k")
			o.Await(1)
			cancel()
			<-done
		})
		f.goesWell(t)
		if len(f.logged) != 1 || !strings.Contains(f.logged[0], "loads that came to it: 1") {
			t.Errorf("logged: %q", f.logged)
		}
	})
}

// An origin that was made outside of a bubble can be used in it.
func TestOriginFromOutsideOfTheBubble(t *testing.T) {
	o := guardtest.NewOrigin(t, shout)
	synctest.Test(t, func(t *testing.T) {
		o.Hold() // and forgotten
		ctx, cancel := context.WithCancel(t.Context())
		done := load(ctx, o, "k")
		o.Await(1)
		time.Sleep(time.Hour)
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("got %v", err)
		}
	})
}

func TestOriginMisused(t *testing.T) {
	for want, do := range map[string]func(o *guardtest.Origin[string]){
		"more than one of Err, Panic and Goexit": func(o *guardtest.Origin[string]) {
			o.Inject(guardtest.Fault{Err: errDown, Panic: errDown})
		},
		"Times is negative": func(o *guardtest.Origin[string]) {
			o.Inject(guardtest.Fault{Times: -1})
		},
		"Takes is negative": func(o *guardtest.Origin[string]) {
			o.Inject(guardtest.Fault{Takes: -1})
		},
	} {
		asTest(func(tb testing.TB) { do(guardtest.NewOrigin(tb, shout)) }).diesWith(t, want)
	}
	asTest(func(tb testing.TB) {
		guardtest.NewOrigin[string](tb, nil)
	}).diesWith(t, "NewOrigin: the value function is nil")
	for _, exit := range []func(){func() { panic(errDown) }, runtime.Goexit} {
		o := guardtest.NewOrigin(t, func(string) string { exit(); return "" })
		over := make(chan struct{})
		go func() {
			defer close(over)
			defer func() { _ = recover() }()
			_, _ = o.Load("k")(t.Context())
		}()
		<-over
		if n := o.Running(); n != 0 {
			t.Errorf("a value function that doesn't return leaves %d loads running", n)
		}
	}
}
