package knowledge

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

func tags(t *testing.T, names ...string) frame.Tags {
	t.Helper()
	tags, err := frame.MakeTags(names)
	if err != nil {
		t.Fatal(err)
	}
	return tags
}

// Every change of a key makes its count another one, be it of this key or of all.
func TestChanges(t *testing.T) {
	var c Changes
	seen := map[uint64]bool{c.Count("key"): true}
	for i, change := range []func(){func() { c.Of("key") }, c.OfAll, func() { c.Of("key") }} {
		change()
		if n := c.Count("key"); seen[n] {
			t.Errorf("after change %d the count is %d, as before", i, n)
		} else {
			seen[n] = true
		}
	}
}

var (
	load   = [16]byte{1}
	errBad = errors.New("bad")
)

func always() bool { return true }
func never() bool  { return false }

// A failed load's error is found by the load's id, and shown to others for the grace after the
// back-off only.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fs Failures
		fs.Remember("key", load, errBad, time.Minute, time.Second, 100*time.Millisecond, always)
		if err := fs.Find("key", load); err != errBad {
			t.Errorf("found %v", err)
		}
		if err := errors.Join(fs.Find("key", [16]byte{2}), fs.Find("other", load),
			fs.Recent("other")); err != nil {
			t.Errorf("found %v of another load", err)
		}
		for _, at := range []struct {
			after time.Duration
			want  error
		}{
			{0, nil}, {time.Second - 1, nil}, {1, errBad}, {100*time.Millisecond - 1, errBad},
			{1, nil},
		} {
			time.Sleep(at.after)
			if err := fs.Recent("key"); err != at.want {
				t.Errorf("%v later: %v, want %v", at.after, err, at.want)
			}
		}
		if fs.Forget("key"); fs.Find("key", load) != nil {
			t.Error("found after it was forgotten")
		}
	})
}

// The error of a load from before a change is kept only if there is no other, and without grace.
func TestFailuresFromBeforeAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fs Failures
		young, errNew := [16]byte{2}, errors.New("new")
		fs.Remember("key", load, errBad, time.Minute, time.Second, time.Second, never)
		if time.Sleep(1500 * time.Millisecond); fs.Recent("key") != nil ||
			fs.Find("key", load) != errBad {
			t.Errorf("recent: %v, of the load: %v", fs.Recent("key"), fs.Find("key", load))
		}
		fs.Remember("key", young, errNew, time.Minute, time.Second, time.Second, always)
		fs.Remember("key", load, errBad, time.Minute, time.Second, time.Second, never)
		if time.Sleep(1500 * time.Millisecond); fs.Recent("key") != errNew ||
			fs.Find("key", young) != errNew {
			t.Errorf("recent: %v, of the later load: %v", fs.Recent("key"), fs.Find("key", young))
		}
		time.Sleep(time.Minute)
		if fs.Remember("key", load, errBad, time.Minute, 0, 0, never); fs.Find("key",
			load) != errBad {
			t.Error("an error that is over is in the way")
		}
	})
}

func (fs *Failures) len() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.byKey)
}

// What is too much is not remembered, a key that is known counts once, and what is over is removed,
// also if nothing follows.
func TestFailuresAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fs Failures
		remember := func(key string) { fs.Remember(key, load, errBad, time.Minute, 0, 0, always) }
		for i := range maxFailures {
			remember(fmt.Sprint(i))
		}
		remember("0")
		if remember("more"); fs.Find("more", load) != nil || fs.Find("0", load) == nil ||
			fs.len() != maxFailures {
			t.Errorf("%d are remembered, at most %d are allowed", fs.len(), maxFailures)
		}
		time.Sleep(time.Minute + 2*sweepEvery)
		if n := fs.len(); n != 0 {
			t.Errorf("%d are remembered when all are over", n)
		}
		remember("more")
		time.Sleep(2 * sweepEvery)
		if n := fs.len(); n != 1 || fs.Find("more", load) == nil {
			t.Errorf("%d are remembered, want the one that isn't over", n)
		}
	})
}

// A pause is of one value and has an end.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ps Pauses
		var c Changes
		ps.Remember(&c, c.Count("key"), "key", []byte("id"), time.Second, errBad)
		if paused, err := ps.Find("key", []byte("id")); !paused || err != errBad {
			t.Errorf("got %v, %v", paused, err)
		}
		for _, other := range [][2]string{{"key", "another"}, {"other", "id"}, {"key", ""}} {
			if paused, err := ps.Find(other[0], []byte(other[1])); paused || err != nil {
				t.Errorf("%q: got %v, %v", other, paused, err)
			}
		}
		time.Sleep(time.Second)
		if paused, err := ps.Find("key", []byte("id")); paused || err != nil {
			t.Errorf("when it is over: got %v, %v", paused, err)
		}
	})
}

// Nothing is remembered that came from before a change, or that says nothing; a change that comes
// later has it forgotten.
func TestPausesEndWithChanges(t *testing.T) {
	var ps Pauses
	var c Changes
	count, id := c.Count("key"), []byte("id")
	c.Of("key")
	ps.Remember(&c, count, "key", id, time.Hour, nil)
	ps.Remember(&c, c.Count("key"), "key", nil, time.Hour, nil)
	ps.Remember(&c, c.Count("key"), "key", id, 0, nil)
	if paused, _ := ps.Find("key", id); paused || len(ps.byKey) > 0 {
		t.Errorf("remembered: %v", ps.byKey)
	}
	for _, end := range []func(){func() { ps.Forget("key") }, ps.Clear} {
		ps.Remember(&c, c.Count("key"), "key", id, time.Hour, nil)
		if paused, _ := ps.Find("key", id); !paused {
			t.Fatal("not remembered")
		}
		if end(); len(ps.byKey) > 0 {
			t.Errorf("remembered: %v", ps.byKey)
		}
	}
}

// A value passes if it is younger than what was heard of the cache and of its tags, and than what
// may have been missed.
func TestInvalidations(t *testing.T) {
	var h Invalidations
	of := tags(t, "a")
	heard, buckets := h.Count(), h.Buckets(of)
	other := "b"
	for h.bucket(other) == h.bucket("a") {
		other += "b"
	}
	if h.Passes(of, 1) {
		t.Error("a value passes although messages have never arrived")
	}
	h.Missed(1)
	if h.Of([]string{other}, 1<<40); !h.Passes(of, 2) || h.After(heard, buckets) {
		t.Error("another tag's invalidation counts")
	}
	h.Of([]string{"a"}, 10)
	h.Of([]string{"a"}, 5)
	if h.Passes(of, 10) || !h.Passes(of, 1<<41) || !h.Passes(nil, 2) || !h.After(heard, buckets) ||
		h.After(h.Count(), buckets) {
		t.Error("an invalidation doesn't count as it should")
	}
	h.Of(nil, 20)
	if h.Passes(nil, 20) || !h.Passes(nil, 21) {
		t.Error("that of the whole cache doesn't")
	}
	if h.Missed(30); h.Passes(nil, 30) || !h.Passes(nil, 31) {
		t.Error("what may have been missed doesn't")
	}
}

// The hint for a key is the tags of the value that was seen last.
func TestHints(t *testing.T) {
	var h Hints
	want := func(names ...string) {
		t.Helper()
		if got := h.Of("key"); !slices.Equal(got.Tags, names) || got.Tags == nil {
			t.Errorf("got %q, want %q", got.Tags, names)
		}
	}
	want()
	h.Note("key", nil)
	h.Note("other", nil)
	want()
	for range 2 {
		h.Note("key", tags(t, "a", "b"))
		want("a", "b")
	}
	h.Note("key", tags(t, "c"))
	want("c")
	h.Note("key", nil)
	want()
}

func TestTagSet(t *testing.T) {
	var s TagSet
	s.Add([]string{"a", "b"})
	s.Add([]string{"b", "c"})
	if !slices.Equal(s.All, []string{"a", "b", "c"}) || s.At["c"] != 2 {
		t.Errorf("got %q, %v", s.All, s.At)
	}
	if !s.Covers(nil) || !s.Covers(tags(t, "c", "a")) || s.Covers(tags(t, "a", "d")) {
		t.Error("covers not what it has")
	}
}
