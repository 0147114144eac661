package watch

import (
	"fmt"
	"slices"
	"testing"
)

// Watchers are told what is said of their key, with the number of their last question, until they
// stop.
func TestWatch(t *testing.T) {
	var b Board[string]
	var heard []string
	watch := func(name, key string) *Watcher[string] {
		return b.Watch(key, func(question uint32, m string) {
			heard = append(heard, fmt.Sprint(name, question, m))
		})
	}
	want := func(all ...string) {
		t.Helper()
		slices.Sort(heard)
		if !slices.Equal(heard, all) {
			t.Errorf("heard %q, want %q", heard, all)
		}
		heard = nil
	}
	b.Tell("key", "nobody")
	one, two, other := watch("one", "key"), watch("two", "key"), watch("other", "another")
	one.Ask()
	b.Tell("key", "a")
	want("one1a", "two0a")
	b.TellAll("b")
	want("one1b", "other0b", "two0b")
	if one.Asked() != 1 || two.Asked() != 0 {
		t.Errorf("asked %d and %d times", one.Asked(), two.Asked())
	}
	one.Stop()
	one.Stop()
	b.Tell("key", "c")
	want("two0c")
	two.Stop()
	other.Stop()
	(*Watcher[string])(nil).Stop()
	if b.TellAll("d"); len(heard) > 0 || len(b.byKey) > 0 {
		t.Errorf("heard %q, and %d keys are left", heard, len(b.byKey))
	}
}

// A watcher that doesn't read its messages gets no more after a number of them. When it has read
// them, it gets messages again.
func TestUnread(t *testing.T) {
	var b Board[int]
	var heard []int
	w := b.Watch("key", func(_ uint32, m int) { heard = append(heard, m) })
	for i := range most + 3 {
		b.Tell("key", i)
	}
	w.Read(0)
	if b.Tell("key", 100); len(heard) != most+1 || heard[most-1] != most-1 || heard[most] != 100 {
		t.Errorf("heard %v", heard)
	}
}

// Messages from before a request don't keep those from being told that may be newer than its
// answer.
func TestUnreadFromBeforeARequest(t *testing.T) {
	var b Board[int]
	var questions []uint32
	w := b.Watch("key", func(question uint32, _ int) { questions = append(questions, question) })
	for range most {
		b.Tell("key", 0)
	}
	w.Ask()
	for range most {
		w.Read(0) // late
	}
	for range most + 3 {
		b.Tell("key", 1)
	}
	if old := questions[:most]; slices.Max(old) != 0 || len(questions) != 2*most ||
		slices.Min(questions[most:]) != 1 {
		t.Errorf("messages came with the requests %v", questions)
	}
}
