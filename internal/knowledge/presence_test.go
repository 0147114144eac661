package knowledge

import (
	"testing"
	"testing/synctest"
	"time"
)

// For an unknown key a value is expected if mostly a value was found before, and not expected if
// mostly none was found.
func TestPresenceOfUnknownKeys(t *testing.T) {
	var p Presence
	if !p.Lacks(p.Of("a")) {
		t.Error("a new process expects values")
	}
	p.Looked(p.Of("a"), true, time.Hour)
	if p.Lacks(p.Of("b")) {
		t.Error("after one that was found a value isn't expected")
	}
	if p.Looked(p.Of("c"), false, 0); !p.Lacks(p.Of("b")) {
		t.Error("after one that was found and then one that was not, a value is expected")
	}
	for range 100 {
		p.Looked(p.Of("c"), false, 0)
	}
	for n := range 6 {
		if !p.Lacks(p.Of("b")) {
			t.Errorf("after a hundred that were not found and %d that were, a value is expected", n)
		}
		p.Looked(p.Of(string(rune('f'+n))), true, time.Hour)
	}
	if p.Lacks(p.Of("b")) {
		t.Error("after six that were found a value isn't expected")
	}
}

// A value that was seen is expected until its time is over or the key is changed. Each reason is
// measured by itself.
func TestPresenceOfKnownKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Presence
		p.Looked(p.Of("a"), true, time.Minute)
		p.Looked(p.Of("unusable"), true, 0)
		p.Of("stored").Stands(ForGood)
		time.Sleep(time.Minute)
		if p.Lacks(p.Of("a")) {
			t.Error("a value that is there for a minute isn't expected after one")
		}
		time.Sleep(2 * time.Millisecond)
		if !p.Lacks(p.Of("a")) {
			t.Error("a value is expected after its end")
		}
		time.Sleep(1000 * time.Hour)
		for _, key := range []string{"unusable", "stored"} {
			if p.Lacks(p.Of(key)) {
				t.Errorf("%s: it isn't expected, though nobody knows its end", key)
			}
		}
		if p.Gone("stored"); !p.Lacks(p.Of("stored")) {
			t.Error("a value is expected after a change")
		}
		p.Looked(p.Of("stored"), true, time.Minute)
		if p.Gone("stored"); p.Lacks(p.Of("stored")) {
			t.Error("no value is expected after a change, although the last one was there")
		}
		if !p.Lacks(p.Of("a")) {
			t.Error("what is found after changes says something of values that have ended")
		}
	})
}

// A hit writes nothing, as long as the end of its value is about the same, and allocates nothing.
func TestPresenceOfHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Presence
		p.Looked(p.Of("a"), true, time.Hour)
		for left, same := range map[time.Duration]bool{
			time.Hour: true, time.Hour - 50*time.Millisecond: true,
			time.Hour + 50*time.Millisecond: true,
			time.Hour + time.Second:         false, time.Hour - time.Second: false, 0: false,
		} {
			e := p.Of("a")
			was := e.place.Load()
			if e.Stands(left); (e.place.Load() == was) != same {
				t.Errorf("after %v the word is the same: %v", left, !same)
			}
			e.place.Store(was)
		}
	})
	var p Presence
	p.Looked(p.Of("a"), true, time.Hour)
	if n := testing.AllocsPerRun(100, func() {
		if e := p.Of("a"); !p.Lacks(e) {
			p.Looked(e, true, time.Hour)
		}
	}); n > 0 {
		t.Errorf("a hit allocates %v times", n)
	}
}
