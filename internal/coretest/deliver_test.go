package coretest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/logtest"
)

// changeable is a store that can refuse changes, or can lose changes that it has taken, as a master
// does that dies before its replica has them.
type changeable struct {
	*tampered
	back time.Duration // its clock was set back by so much after the last grant

	mu      sync.Mutex
	forgets bool
	tell    []func(cacheguard.Message)
	keys    int                  // that it was told of, each time
	refuses cacheguard.KeyErrors // of these always
}

var changeSteps = []string{"Invalidate", "MarkStale", "InvalidateTags", "Claim"}

func newChangeable() *changeable { return &changeable{tampered: newTampered()} }

func (s *changeable) Now() time.Time { return s.tampered.Now().Add(-s.back) }

func (s *changeable) away(away bool) {
	for _, step := range changeSteps {
		if away {
			s.onto(step, fails(always))
		} else {
			s.onto(step, nil)
		}
	}
}

// forget makes the store take changes and lose them.
func (s *changeable) forget(forgets bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgets = forgets
}

func (s *changeable) loses() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forgets
}

func (s *changeable) Listen(cache string, tell func(cacheguard.Message)) (stop func()) {
	s.mu.Lock()
	s.tell = append(s.tell, tell)
	s.mu.Unlock()
	return s.tampered.Listen(cache, tell)
}

// restore tells that messages arrive again.
func (s *changeable) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tell := range s.tell {
		tell(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: s.Now().UnixMicro()})
	}
}

func (s *changeable) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	if s.loses() {
		return nil
	}
	failed := cacheguard.KeyErrors{}
	s.mu.Lock()
	s.keys += len(keys)
	for _, k := range keys {
		if err := s.refuses[k.Key]; err != nil {
			failed[k.Key] = err
		}
	}
	s.mu.Unlock()
	if err := s.tampered.Invalidate(ctx, keys); err != nil || len(failed) == 0 {
		return err
	}
	return failed
}

func (s *changeable) MarkStale(
	ctx context.Context, keys []cacheguard.Key, at int, mark []byte,
) error {
	if s.loses() {
		return nil
	}
	return s.tampered.MarkStale(ctx, keys, at, mark)
}

func (s *changeable) InvalidateTags(
	ctx context.Context, cache string, tags []string,
) (int64, error) {
	if s.loses() {
		return s.Now().UnixMicro(), nil
	}
	return s.tampered.InvalidateTags(ctx, cache, tags)
}

func (s *changeable) Claim(
	ctx context.Context, k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
) (cacheguard.Grant, error) {
	if s.loses() {
		return cacheguard.Grant{Token: token, Number: 1}, nil
	}
	return s.tampered.Claim(ctx, k, token, ttl)
}

// changesOfK of changing what is kept under k.
var changesOfK = map[string]func(ctx context.Context, c *cacheguard.Cache[string]) error{
	"Invalidate": func(ctx context.Context, c *cacheguard.Cache[string]) error {
		return c.Invalidate(ctx, "k", "other")
	},
	"MarkStale": func(ctx context.Context, c *cacheguard.Cache[string]) error {
		return c.MarkStale(ctx, "k", "other")
	},
	"InvalidateTags": func(ctx context.Context, c *cacheguard.Cache[string]) error {
		return c.InvalidateTags(ctx, "t", "u")
	},
	"MarkStaleTags": func(ctx context.Context, c *cacheguard.Cache[string]) error {
		return c.MarkStaleTags(ctx, "soft")
	},
	"InvalidateAll": func(ctx context.Context, c *cacheguard.Cache[string]) error {
		return c.InvalidateAll(ctx)
	},
	"Set": func(ctx context.Context, c *cacheguard.Cache[string]) error {
		return c.Set(ctx, "k", "set")
	},
	"Update": func(ctx context.Context, c *cacheguard.Cache[string]) error {
		_, err := c.Update(ctx, "k", returning("written"))
		return err
	},
}

func withTags(v string) cacheguard.EntryFunc[string] {
	return func(context.Context, cacheguard.Result[string]) (cacheguard.Entry[string], error) {
		return cacheguard.Entry[string]{Value: v, Tags: []string{"t"}, SoftTags: []string{"soft"}},
			nil
	}
}

// entryOf returns the answer of a Get whose load would return v, or the error of this Get.
func entryOf(t *testing.T, c *cacheguard.Cache[string], v string) string {
	t.Helper()
	res, err := c.GetEntry(t.Context(), "k", withTags(v))
	if err != nil {
		t.Fatalf("GetEntry: %v", err)
	}
	return res.Value
}

// If the store could not be told of a change, this process doesn't serve the old value. The change
// is repeated until the store has it, and not afterwards. Then other processes don't serve the old
// value any more either. All this also holds after the store's clock was set back.
func TestDelivery(t *testing.T) {
	for name, change := range changesOfK {
		for _, back := range []time.Duration{0, time.Hour} {
			name := fmt.Sprintf("%s, clock %v back", name, back)
			inBubble(t, name, func(t *testing.T) { delivers(t, change, back) })
		}
	}
}

func delivers(
	t *testing.T, change func(context.Context, *cacheguard.Cache[string]) error,
	back time.Duration,
) {
	store := newChangeable()
	store.back = back
	opts := cacheguard.Options[string]{
		Local: cacheguard.Local[string]{Entries: 10}, StaleIfError: time.Hour,
	}
	here, there := openOn(t, store, opts), openOn(t, store, cacheguard.Options[string]{})
	if got := entryOf(t, here, "old"); got != "old" {
		t.Fatal(got)
	}
	store.away(true)
	time.Sleep(time.Second)
	if err := change(t.Context(), here); !errors.Is(err, cacheguard.ErrPending) ||
		!errors.Is(err, errTampered) {
		t.Errorf("%v; want that it is repeated, and why", err)
	}
	if n := here.Stats().Unsent; n == 0 {
		t.Error("nothing is unsent")
	}
	if got := entryOf(t, there, "unused"); got != "old" {
		t.Errorf("the other process has %q: the store was told", got)
	}
	for _, later := range []time.Duration{0, time.Second, time.Hour} {
		time.Sleep(later)
		if got := entryOf(t, here, "new"); got != "new" {
			t.Errorf("%v later it is %q", later, got)
		}
	}
	if err := here.Invalidate(t.Context()); err != nil {
		t.Errorf("no key: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	if err := here.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) ||
		!errors.Is(err, errTampered) {
		t.Errorf("Flush: %v; want that time is over, and why", err)
	}
	cancel()
	store.away(false)
	began := time.Now()
	if err := here.Flush(t.Context()); err != nil || time.Since(began) > mostPause {
		t.Errorf("Flush: %v after %v", err, time.Since(began))
	}
	if s := here.Stats(); s.Unsent != 0 || s.SentLate == 0 {
		t.Errorf("%+v", s)
	}
	for _, c := range []*cacheguard.Cache[string]{here, there, here} {
		if got := entryOf(t, c, "newer"); got == "old" {
			t.Error("it has the old one")
		}
	}
}

const mostPause = 750 * time.Millisecond // with its jitter

// If the store has lost a recent change, it is told again when messages arrive again. Values that
// were loaded after the change stay.
func TestForgottenChanges(t *testing.T) {
	changes := maps.Clone(changesOfK)
	delete(changes, "Set") // it leaves a value, which is forgotten with the change
	changes["Update"] = func(ctx context.Context, c *cacheguard.Cache[string]) error {
		if _, err := c.Update(ctx, "k", func(context.Context) (string, error) {
			return "", errWrite
		}); !errors.Is(err, errWrite) {
			return err
		}
		return nil
	}
	for name, change := range changes {
		inBubble(t, name, func(t *testing.T) {
			store := newChangeable()
			here, there := openOn(t, store, cacheguard.Options[string]{}),
				openOn(t, store, cacheguard.Options[string]{})
			// An earlier one, which is not forgotten.
			if byTag := strings.HasSuffix(name, "Tags") || name == "InvalidateAll"; byTag {
				if err := change(t.Context(), there); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			entryOf(t, here, "old")
			time.Sleep(time.Second)
			store.forget(true)
			if err := change(t.Context(), here); err != nil {
				t.Fatal(err)
			}
			store.forget(false)
			if got := entryOf(t, there, "unused"); got != "old" {
				t.Fatalf("%q: it was not forgotten", got)
			}
			tells := func() int {
				return store.steps("Invalidate") + store.steps("MarkStale") +
					store.steps("InvalidateTags")
			}
			told := tells()
			store.restore()
			if got := entryOf(t, here, "new"); got != "new" {
				t.Errorf("%q in the process that knows", got)
			}
			if err := here.Flush(t.Context()); err != nil {
				t.Errorf("Flush: %v", err)
			}
			if n := tells(); n != told+1 {
				t.Errorf("the store was told %d times of what it has forgotten", n-told)
			}
			if got := entryOf(t, there, "new"); got != "new" {
				t.Errorf("%q elsewhere", got)
			}
			time.Sleep(time.Second)
			if err := change(t.Context(), here); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			entryOf(t, there, "newer")
			told = tells()
			store.restore()
			if err := here.Flush(t.Context()); err != nil {
				t.Errorf("Flush: %v", err)
			}
			if got := entryOf(t, there, "unused"); got != "newer" {
				t.Errorf("%q: what was loaded since is gone", got)
			}
			others := 0 // of a key that isn't there nobody can say
			if name == "Invalidate" || name == "MarkStale" {
				others = 1
			}
			if n := tells(); n != told+others {
				t.Errorf("the store was told %d times of what it knows", n-told)
			}
			time.Sleep(time.Minute)
			store.restore()
			if n := here.Stats().Unsent; n != 0 {
				t.Errorf("%d changes of long ago are repeated", n)
			}
		})
	}
}

// A change that reaches the store also covers earlier changes of the same key that didn't reach it.
// But a stale mark doesn't cover an invalidation.
func TestDeliveryByTheNextChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newChangeable()
		c := openOn(t, store, cacheguard.Options[string]{})
		store.away(true)
		for name, change := range changesOfK {
			if err := change(t.Context(), c); err == nil {
				t.Errorf("%s has not failed", name)
			}
		}
		// It has been tried again, and time stands still from now on.
		for tries := store.steps("InvalidateTags"); store.steps("InvalidateTags") == tries; {
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		store.onto("MarkStale", nil)
		// K, other, t, u, soft, all.
		if err := c.MarkStale(t.Context(), "k"); err != nil || c.Stats().Unsent != 6 {
			t.Errorf("%v; %d are unsent, want 6", err, c.Stats().Unsent)
		}
		store.onto("Invalidate", nil)
		if err := c.Invalidate(t.Context(), "k"); err != nil || c.Stats().Unsent != 5 {
			t.Errorf("%v; %d are unsent, want 5", err, c.Stats().Unsent)
		}
		store.onto("InvalidateTags", nil)
		if err := c.InvalidateTags(t.Context(), "t", "u"); err != nil || c.Stats().Unsent != 3 {
			t.Errorf("%v; %d are unsent, want 3", err, c.Stats().Unsent)
		}
		if err := c.InvalidateAll(t.Context()); err != nil || c.Stats().Unsent != 0 {
			t.Errorf("%v; %d are unsent, want none", err, c.Stats().Unsent)
		}
	})
}

// If the next change covers the last unsent one, nothing is left that Flush or Shutdown waits for.
func TestDeliveryOfTheLastByTheNextChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newChangeable()
		c := openOn(t, store, cacheguard.Options[string]{})
		fails := func() {
			t.Helper()
			store.away(true)
			if err := c.Invalidate(t.Context(), "k"); !errors.Is(err, cacheguard.ErrPending) {
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // from now on the pauses between tries are long
		}
		succeeds := func() {
			t.Helper()
			store.away(false)
			if err := c.Invalidate(t.Context(), "k"); err != nil || c.Stats().Unsent != 0 {
				t.Fatalf("%v; %d are unsent, want none", err, c.Stats().Unsent)
			}
		}
		fails()
		flush := beginCall(t, func() (struct{}, error) { return struct{}{}, c.Flush(t.Context()) })
		flush.waits()
		succeeds()
		flush.gives(struct{}{}, nil)
		fails()
		succeeds()
		shutting(t.Context(), t, c).gives(struct{}{}, nil)
	})
}

// If a change of several keys fails for some of them, only these keys are repeated.
func TestDeliveryOfSomeKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		var mended atomic.Bool
		store.onto("Invalidate", func(context.Context) error {
			if !mended.Load() {
				return cacheguard.KeyErrors{"b": errTampered}
			}
			return nil
		})
		err := c.Invalidate(t.Context(), "a", "b", "c")
		var keys cacheguard.KeyErrors
		if !errors.As(err, &keys) || len(keys) != 1 ||
			!errors.Is(keys["b"], cacheguard.ErrPending) || c.Stats().Unsent != 1 {
			t.Errorf("%v; %d are unsent", err, c.Stats().Unsent)
		}
		time.Sleep(time.Minute)
		mended.Store(true)
		if err := c.Flush(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// More than can be remembered are one change of the whole cache.
func TestDeliveryOfTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newChangeable()
		here, there := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		entryOf(t, here, "old")
		time.Sleep(time.Second)
		store.away(true)
		for i := range 20_000 {
			if err := here.Invalidate(t.Context(), fmt.Sprint("of many ", i)); !errors.Is(err,
				cacheguard.ErrPending) {
				t.Fatal(err)
			}
		}
		if n := here.Stats().Unsent; n == 0 || n > 16<<10 {
			t.Errorf("%d are unsent", n)
		}
		if got := entryOf(t, here, "new"); got != "new" {
			t.Errorf("%q: it has forgotten more than the store was not told of", got)
		}
		store.away(false)
		if err := here.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if got := entryOf(t, there, "new"); got != "new" {
			t.Errorf("%q", got)
		}
		if n := here.Stats().SentLate; n == 0 || n > 4000 {
			t.Errorf("%d were sent", n)
		}
	})
}

// Shutdown waits for unsent changes until its context ends, and its error has the number of changes
// that are left. Close tries once more and logs the rest. The log has one line for the beginning of
// the trouble, and one line for its end.
func TestDeliveryAtTheEnd(t *testing.T) {
	for name, of := range map[string]struct {
		back bool // in time
		end  func(ctx context.Context, c *cacheguard.Cache[string]) error
	}{
		"Shutdown": {true, func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Shutdown(ctx)
		}},
		"Shutdown in vain": {false, func(ctx context.Context, c *cacheguard.Cache[string]) error {
			err := c.Shutdown(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errTampered) ||
				!strings.Contains(err.Error(), "2 changes") {
				return fmt.Errorf("Shutdown: %w", err)
			}
			return nil
		}},
		"Close": {false, func(_ context.Context, c *cacheguard.Cache[string]) error {
			return c.Close()
		}},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := newChangeable()
			var lines bytes.Buffer
			c := openOn(t, store,
				cacheguard.Options[string]{Logger: slog.New(slog.NewTextHandler(&lines, nil))})
			store.away(true)
			if err := errors.Join(c.Invalidate(t.Context(), "a", "b"),
				c.Invalidate(t.Context(), "a")); err == nil {
				t.Error("no error")
			}
			if of.back {
				time.AfterFunc(time.Minute, func() { store.away(false) })
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := of.end(ctx, c); err != nil {
				t.Error(err)
			}
			if err := c.Flush(t.Context()); (err == nil) != of.back {
				t.Errorf("Flush afterwards: %v", err)
			}
			want := []string{"can't be used for changes", "closed before"}
			if of.back {
				want[1] = "has all changes now"
			}
			all := strings.Split(strings.TrimSpace(lines.String()), "\n")
			n := len(all)
			all = slices.DeleteFunc(all, func(line string) bool {
				return strings.Contains(line, "since=")
			})
			// An hour of repeating.
			if lasts := name == "Shutdown in vain"; lasts != (n-len(all) > 10) {
				t.Errorf("told again %d times", n-len(all))
			}
			if len(all) != 2 || !strings.Contains(all[0], want[0]) ||
				!strings.Contains(all[1], want[1]) {
				t.Errorf("logged %q", all)
			}
		})
	}
}

// If a store takes no changes, it is sent one of them from time to time, for any number of changes
// and any duration. When it takes this change, all others follow at once.
func TestDeliveryInVain(t *testing.T) {
	inVain := func(t *testing.T) (*changeable, *cacheguard.Cache[string]) {
		store := newChangeable()
		c := openOn(t, store, cacheguard.Options[string]{})
		store.away(true)
		for i := range 60 {
			if err := c.Invalidate(t.Context(), fmt.Sprint(i)); !errors.Is(err,
				cacheguard.ErrPending) {
				t.Fatal(err)
			}
		}
		return store, c
	}
	told := func(s *changeable) int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.keys
	}
	inBubble(t, "cost", func(t *testing.T) {
		store, _ := inVain(t)
		began := told(store)
		time.Sleep(10 * time.Second)
		if n := told(store) - began; n < 3 || n > 10 {
			t.Errorf("the store was asked %d times in 10 seconds", n)
		}
		began = told(store)
		time.Sleep(time.Hour)
		if n := told(store) - began; n < 1200 || n > 6000 {
			t.Errorf("the store was asked %d times in an hour", n)
		}
	})
	for name, sign := range map[string]struct {
		of func(t *testing.T, s *changeable, c *cacheguard.Cache[string])
		in time.Duration
	}{
		"by itself": {
			func(*testing.T, *changeable, *cacheguard.Cache[string]) {}, 4 * time.Second,
		},
		"messages arrive": {func(_ *testing.T, s *changeable, _ *cacheguard.Cache[string]) {
			s.restore()
		}, 0},
		"another change": {func(t *testing.T, _ *changeable, c *cacheguard.Cache[string]) {
			if err := c.Invalidate(t.Context(), "another"); err != nil {
				t.Error(err)
			}
		}, 0},
		"a read": {func(t *testing.T, s *changeable, c *cacheguard.Cache[string]) {
			s.onto("Get", fails(always))
			_, _ = c.Peek(t.Context(), "k")
			s.onto("Get", nil)
			if _, err := c.Peek(t.Context(), "k"); err != nil {
				t.Error(err)
			}
		}, 0},
	} {
		inBubble(t, name, func(t *testing.T) {
			store, c := inVain(t)
			time.Sleep(time.Hour)
			// The next one is far.
			for tries := store.steps("Invalidate"); store.steps("Invalidate") == tries; {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(leastPause)
			store.away(false)
			before := store.steps("Invalidate")
			sign.of(t, store, c)
			time.Sleep(sign.in)
			synctest.Wait()
			if n := c.Stats().Unsent; n > 0 {
				t.Errorf("%d are unsent", n)
			}
			if n := store.steps("Invalidate") - before; n > 3 { // the sign, one alone, the others
				t.Errorf("that took %d steps", n)
			}
		})
	}
	inBubble(t, "one alone is refused", func(t *testing.T) {
		store := newChangeable()
		c := openOn(t, store, cacheguard.Options[string]{})
		store.away(true)
		for i := range 60 {
			_ = c.Invalidate(t.Context(), fmt.Sprint(i))
		}
		store.mu.Lock()
		store.refuses = cacheguard.KeyErrors{"0": errTampered}
		store.mu.Unlock()
		store.away(false)
		time.Sleep(10 * time.Second)
		if n := c.Stats().Unsent; n != 1 {
			t.Errorf("%d are unsent, want the one that is refused", n)
		}
	})
}

const leastPause = 1100 * time.Millisecond // after a try until a sign counts

// An answer that the store sent before the delivery, and that arrives after it, is not used,
// because its caller came after the change.
func TestDeliveryMeetsARead(t *testing.T) {
	for _, step := range []string{"Get", "GetMany"} {
		inBubble(t, step, func(t *testing.T) {
			store := newChangeable()
			c := openOn(t, store, cacheguard.Options[string]{})
			entryOf(t, c, "old")
			time.Sleep(time.Second)
			store.away(true)
			if err := c.Invalidate(t.Context(), "k"); err == nil {
				t.Fatal("no error")
			}
			held := make(chan struct{})
			store.past(step, func(context.Context) error { <-held; return nil })
			call := beginCall(t, func() (string, error) {
				if step == "Get" {
					return c.Get(t.Context(), "k", returning("new"))
				}
				got, err := c.GetMany(t.Context(), []string{"k"}, func(
					context.Context, []string,
				) (map[string]string, error) {
					return map[string]string{"k": "new"}, nil
				})
				return got["k"], err
			})
			synctest.Wait()
			store.past(step, nil)
			store.away(false)
			if err := c.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			close(held)
			call.gives("new", nil)
		})
	}
}

// A replacement for a value that is unsent is used as soon as the store has taken a change of it.
func TestSetAfterAFailedSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newChangeable()
		c := openOn(t, store, cacheguard.Options[string]{})
		store.away(true)
		if err := c.Set(t.Context(), "k", "lost"); !errors.Is(err, cacheguard.ErrPending) {
			t.Error(err)
		}
		store.away(false)
		if err := c.Set(t.Context(), "k", "set"); err != nil {
			t.Error(err)
		}
		if got := entryOf(t, c, "unused"); got != "set" || c.Stats().Unsent != 0 {
			t.Errorf("%q, %d unsent", got, c.Stats().Unsent)
		}
	})
}

var _ cacheguard.Store = (*changeable)(nil)

// Changes that can't be delivered don't delay changes that can be delivered, for any number of
// them.
func TestDeliveryBesideWhatCantBeDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPartial()
		c := openOn(t, store, cacheguard.Options[string]{})
		store.lacks.Store(&[]string{"bad", "good"})
		for i := range 8000 {
			if err := c.Invalidate(t.Context(), fmt.Sprint("bad ", i)); !errors.Is(err,
				cacheguard.ErrPending) {
				t.Fatal(err)
			}
		}
		for i := range 10 {
			if err := c.Invalidate(t.Context(), fmt.Sprint("good ", i)); !errors.Is(err,
				cacheguard.ErrPending) {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		store.lacks.Store(&[]string{"bad"})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := c.Stats().Unsent; n != 8000 {
			t.Errorf("%d changes are left", n)
		}
		// The oldest and the newest ones, too.
		store.lacks.Store(&[]string{"bad 0", "bad 4", "bad 7"})
		time.Sleep(5*time.Minute + 10*time.Second)
		synctest.Wait()
		if n := c.Stats().Unsent; n != 1+1111+1111 {
			t.Errorf("%d changes are left of those that can be delivered", n)
		}
		store.lacks.Store(&[]string{})
		if err := c.Flush(t.Context()); err != nil || c.Stats().Unsent != 0 {
			t.Errorf("%v, %d left", err, c.Stats().Unsent)
		}
	})
}

// partial is a store that can't be told of keys that begin with certain words.
type partial struct {
	*tampered
	lacks atomic.Pointer[[]string]
}

func newPartial() *partial {
	s := &partial{tampered: newTampered()}
	s.lacks.Store(&[]string{})
	return s
}

func (s *partial) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	failed := cacheguard.KeyErrors{}
	var rest []cacheguard.Key
	for _, k := range keys {
		rest = append(rest, k)
		for _, word := range *s.lacks.Load() {
			if strings.HasPrefix(k.Key, word) {
				failed[k.Key], rest = errTampered, rest[:len(rest)-1]
				break
			}
		}
	}
	if len(rest) > 0 {
		if err := s.tampered.Invalidate(ctx, rest); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return failed
	}
	return nil
}

// Where the whole cache can't be invalidated, keys can be: changes of keys don't wait for it.
func TestDeliveryOfKeysBesideTheWholeCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newChangeable()
		c := openOn(t, store, cacheguard.Options[string]{})
		store.onto("InvalidateTags", fails(always))
		if err := c.InvalidateAll(t.Context()); !errors.Is(err, cacheguard.ErrPending) {
			t.Fatal(err)
		}
		store.onto("Invalidate", fails(always))
		if err := c.Invalidate(t.Context(), "a", "b"); !errors.Is(err, cacheguard.ErrPending) {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		store.onto("Invalidate", nil)
		time.Sleep(10 * time.Second)
		if n := c.Stats().Unsent; n != 1 {
			t.Errorf("%d changes are left, want that of the whole cache", n)
		}
		store.onto("InvalidateTags", nil)
		if err := c.Flush(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A change that came late counts once, however often messages are interrupted afterwards and it is
// verified or repeated. A change that came in time and is still there doesn't count at all.
func TestALateChangeCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text logtest.Lines
		store := newChangeable()
		c := openOn(t, store, cacheguard.Options[string]{Logger: text.Logger()})
		for _, key := range []string{"in time", "k"} {
			if err := c.Invalidate(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if _, err := c.GetEntry(t.Context(), key, withTags("v")); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.InvalidateTags(t.Context(), "in time"); err != nil {
			t.Fatal(err)
		}
		store.away(true)
		// After that nobody loads a, so it is told to the store once more.
		for name, err := range map[string]error{
			"a": c.Invalidate(t.Context(), "a"), "k": c.MarkStale(t.Context(), "k"),
			"tag": c.InvalidateTags(t.Context(), "t"),
		} {
			if !errors.Is(err, cacheguard.ErrPending) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		store.onto("Invalidate", nil)
		store.onto("MarkStale", nil)
		time.Sleep(10 * time.Second) // all but the tag arrive
		again := func() {
			t.Helper()
			store.restore()
			time.Sleep(time.Second)
			if s := c.Stats(); s.SentLate != 2 || s.Unsent != 1 {
				t.Errorf("%d changes were late, want 2; %d are left, want 1", s.SentLate, s.Unsent)
			}
		}
		again()
		again()
		// A failover loses the tag's change, which came late: it is repeated, and is not late once
		// more.
		store.forget(true)
		store.away(false)
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		store.forget(false)
		for range 2 {
			store.restore()
			if err := c.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if s := c.Stats(); s.SentLate != 3 || s.Changes != 6 {
			t.Errorf("%d of %d changes were late, want 3 of 6", s.SentLate, s.Changes)
		}
		if text.Count("repeated=3") != 1 {
			t.Errorf("the log: %s", &text)
		}

		// A change of the same key that comes late later is another one.
		store.away(true)
		_ = c.Invalidate(t.Context(), "a")
		store.away(false)
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := c.Stats(); s.SentLate != 4 {
			t.Errorf("%d changes were late, want 4", s.SentLate)
		}
	})
}

// If messages are interrupted and nothing shows whether the store still has a change of a key, the
// change is repeated and doesn't count as late. It counts if the store still has the value from
// before the change.
func TestAChangeThatIsRepeatedToBeSureIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newChangeable()
		c := openOn(t, store, cacheguard.Options[string]{})
		interrupted := func(late uint64) {
			t.Helper()
			store.restore()
			if err := c.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s := c.Stats(); s.SentLate != late || s.Unsent != 0 {
				t.Errorf("%d changes were late, want %d; %d are left", s.SentLate, late, s.Unsent)
			}
		}
		for _, key := range []string{"nobody loads it", "k", "loaded at once"} {
			if err := c.Invalidate(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.MarkStale(t.Context(), "marked and absent"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.GetEntry(t.Context(), "loaded at once", withTags("v")); err != nil {
			t.Fatal(err)
		}
		interrupted(0)
		interrupted(0)
		entryOf(t, c, "old")
		time.Sleep(time.Second)
		store.forget(true)
		if err := c.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		store.forget(false)
		interrupted(1)
		interrupted(1)
	})
}

// Trouble with changes that lasts is told, however often it has come and gone before.
func TestDeliveryThatFailsIsToldInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text logtest.Lines
		store := newChangeable()
		c := openOn(t, store, cacheguard.Options[string]{Logger: text.Logger()})
		for range 4 {
			store.away(true)
			if err := c.Invalidate(t.Context(), "k"); !errors.Is(err, cacheguard.ErrPending) {
				t.Fatal(err)
			}
			store.away(false)
			if err := c.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		store.away(true)
		_ = c.Invalidate(t.Context(), "k")
		const begins, ends = "can't be used for changes", "store has all changes now"
		if n, over := text.Count(begins), text.Count(ends); n != 3 || over != 3 {
			t.Errorf("four times that were soon over are %d lines, and %d about the end", n, over)
		}
		time.Sleep(2 * time.Minute)
		if n := text.Count(begins); n != 4 {
			t.Errorf("%d lines after two minutes of trouble", n)
		}
		store.away(false)
		if err := c.Flush(t.Context()); err != nil || text.Count(ends) != 4 {
			t.Errorf("%v, and %d lines about the end", err, text.Count(ends))
		}
	})
}

// broken is an error of a store that knows its server and its cause.
type broken string

func (b broken) Error() string           { return "redis:6379: " + string(b) }
func (b broken) Where() (string, string) { return "redis:6379", string(b) }

// watchedWithLog opens a cache with the value of "k", whose store can be made to fail.
func watchedWithLog(
	t *testing.T, eye *watching, text *logtest.Lines,
) (*tampered, *cacheguard.Cache[string]) {
	t.Helper()
	store := newTampered()
	c := openOn(t, store, cacheguard.Options[string]{Observer: eye, Logger: text.Logger()})
	if err := c.Set(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	return store, c
}

// Trouble whose cause changes has the cause of now, for the log and for watchers, and the time when
// it began.
func TestTroubleHasTheCauseOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text logtest.Lines
		var eye watching
		store, c := watchedWithLog(t, &eye, &text)
		began := time.Now()
		for _, cause := range []string{
			"connection refused", "connection refused", "authentication failed",
		} {
			store.onto("Get", func(context.Context) error { return broken(cause) })
			_, _ = c.Get(t.Context(), "k", returning("v"))
			all := eye.view.Troubles()
			if len(all) != 1 || all[0].Cause != cause || !all[0].Since.Equal(began) {
				t.Errorf("with %s: %+v", cause, all)
			}
			time.Sleep(time.Second)
		}
		if n := text.Count("can't be used for reading"); n != 2 ||
			text.Count("authentication failed") == 0 {
			t.Errorf("%d lines: %s", n, &text)
		}
	})
}

// refused is an error of a store that names the right that is missing.
type refused string

func (r refused) Error() string           { return "redis:6379: lacks " + string(r) }
func (r refused) Where() (string, string) { return "redis:6379", "the Redis user lacks a right" }
func (r refused) Lacks() string           { return string(r) }

// Trouble with rights names the right that is missing now: somebody gives the service one right
// after another. The log has each right once, even if two rights are missing by turns.
func TestTroubleNamesTheRightOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text logtest.Lines
		var eye watching
		store, c := watchedWithLog(t, &eye, &text)
		for _, right := range strings.Fields("+evalsha +del" + strings.Repeat(" +mget +get", 100)) {
			store.onto("Get", func(context.Context) error { return refused(right) })
			_, _ = c.Get(t.Context(), "k", returning("v"))
			if all := eye.view.Troubles(); len(all) != 1 ||
				!strings.HasSuffix(all[0].Text, "lacks "+right) {
				t.Errorf("without %s: %+v", right, all)
			}
			time.Sleep(time.Second)
		}
		// And no fourth one in this minute.
		for _, right := range []string{"+evalsha", "+del", "+mget"} {
			if n := text.Count("lacks " + right); n != 1 {
				t.Errorf("%s is in %d lines: %s", right, n, &text)
			}
		}
	})
}

// watching keeps the view of a cache.
type watching struct{ view cacheguard.View }

func (w *watching) Observe(context.Context, cacheguard.Event) {}
func (w *watching) Watch(v cacheguard.View) (detach func())   { w.view = v; return nil }
