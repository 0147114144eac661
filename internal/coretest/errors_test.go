package coretest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// TestErrorsTellThemselvesApart: errors differ in their text and by errors.Is.
func TestErrorsTellThemselvesApart(t *testing.T) {
	all := []error{
		cacheguard.ErrNotFound, cacheguard.ErrClosed, cacheguard.ErrUnavailable,
		cacheguard.ErrOverloaded,
		cacheguard.ErrLeaseLost, cacheguard.ErrRecursion, cacheguard.ErrTooLarge,
	}
	texts := map[string]bool{}
	for i, err := range all {
		for j, other := range all {
			if errors.Is(err, other) != (i == j) {
				t.Errorf("errors.Is(%v, %v) is %v", err, other, i != j)
			}
		}
		if !strings.HasPrefix(err.Error(), "cacheguard: ") {
			t.Errorf("%q doesn't say where it is from", err)
		}
		texts[err.Error()] = true
	}
	if len(texts) != len(all) {
		t.Errorf("%d errors have %d texts", len(all), len(texts))
	}
}

func TestLoadErrorText(t *testing.T) {
	for _, key := range []string{"k", "", "line\nend", "\x00\xff", strings.Repeat("k", 10000)} {
		text := (&cacheguard.LoadError{Key: key, Text: "the reason"}).Error()
		if !strings.HasPrefix(text, "cacheguard: ") || !strings.HasSuffix(text, "the reason") ||
			strings.ContainsAny(text, "\n\x00") || !utf8.ValidString(text) || len(text) > 300 {
			t.Errorf("the text for key %.20q is %q", key, text)
		}
	}
	if err := errors.Unwrap(&cacheguard.LoadError{}); err != nil {
		t.Errorf("it wraps %v", err)
	}
}

// TestKeyErrors: the text is the same every time and shows only a few of many errors. errors.Is
// finds all of them.
func TestKeyErrors(t *testing.T) {
	failed, want := cacheguard.KeyErrors{}, []error{}
	for i := range 12 {
		err := fmt.Errorf("reason %d", i)
		failed[fmt.Sprintf("key %02d", i)] = err
		want = append(want, err)
	}
	if got := failed.Unwrap(); !slices.Equal(got, want) {
		t.Errorf("Unwrap: %v; want the order of the keys", got)
	}
	text := `cacheguard: 12 keys failed; "key 00": reason 0; "key 01": reason 1; "key 02": reason 2; "key 03": reason 3; "key 04": reason 4; ...`
	for range 10 {
		if got := failed.Error(); got != text {
			t.Fatalf("its text is %s; want %s", got, text)
		}
	}
	if !errors.Is(failed, want[11]) || errors.Is(failed, errOrigin) {
		t.Error("errors.Is doesn't look at all keys, or at more")
	}
	if text := (cacheguard.KeyErrors{
		"a\n": errOrigin,
	}).Error(); text != `cacheguard: 1 key failed; "a\n": the origin is down` {
		t.Errorf("the text for one is %s", text)
	}
	if text := (cacheguard.KeyErrors{}).Error(); text == "" ||
		len(cacheguard.KeyErrors(nil).Unwrap()) != 0 {
		t.Errorf("the text for none is %q", text)
	}
}

// TestWords: every kind and status has a word of its own, also those that this program doesn't
// know.
func TestWords(t *testing.T) {
	seen := map[string]bool{}
	for k := cacheguard.EventHit; k <= cacheguard.EventOverloaded; k++ {
		word := k.String()
		if word == "" || strings.HasPrefix(word, "EventKind(") || seen[word] {
			t.Errorf("EventKind %d is %q", uint8(k), word)
		}
		seen[word] = true
	}
	for k, want := range map[cacheguard.EventKind]string{
		0: "EventKind(0)", 255: "EventKind(255)", cacheguard.EventFillRefused: "fill refused",
	} {
		if got := k.String(); got != want {
			t.Errorf("EventKind %d is %q; want %q", uint8(k), got, want)
		}
	}
	for s, want := range map[cacheguard.Status]string{
		cacheguard.StatusMiss: "miss", cacheguard.StatusHit: "hit", cacheguard.StatusStale: "stale",
		cacheguard.StatusLoaded:    "loaded",
		cacheguard.StatusCoalesced: "coalesced", 200: "Status(200)",
	} {
		if got := s.String(); got != want {
			t.Errorf("Status %d is %q; want %q", uint8(s), got, want)
		}
	}
	if got := (cacheguard.ID{0xab, 15: 1}).String(); got != "ab"+strings.Repeat("00", 14)+"01" {
		t.Errorf("an ID is %q", got)
	}
	if !(cacheguard.ID{}).IsZero() || (cacheguard.ID{15: 1}).IsZero() {
		t.Error("IsZero is wrong")
	}
}
