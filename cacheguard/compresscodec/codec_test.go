package compresscodec_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/compresscodec"
)

var algorithms = []compresscodec.Algorithm{compresscodec.S2, compresscodec.Zstd}

// open makes a codec of options that are right.
func open[V any](t testing.TB, opts compresscodec.Options[V]) *compresscodec.Codec[V] {
	t.Helper()
	c, err := compresscodec.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// text is n bytes that can be compressed well, and noise n bytes that can't.
func text(n int) []byte { return []byte(strings.Repeat("a category map, ", n/16+1))[:n] }
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// TestRoundTrip of every size around where something changes, read by a codec with the other
// algorithm too.
func TestRoundTrip(t *testing.T) {
	var readers []*compresscodec.Codec[[]byte]
	for _, a := range algorithms {
		readers = append(readers, open(t, compresscodec.Options[[]byte]{Algorithm: a}))
	}
	for _, a := range algorithms {
		writer := open(t, compresscodec.Options[[]byte]{Algorithm: a, Threshold: -1})
		for _, size := range []int{0, 1, 2, 31, 32, 255, 256, 257, 1023, 1024, 1025, 65535, 65536, 1 << 17, 1<<17 + 1, 1 << 20, 9 << 20} {
			for _, value := range [][]byte{text(size), noise(size)} {
				prefix := []byte("prefix")
				out, err := writer.Append(bytes.Clone(prefix), value)
				if err != nil || !bytes.HasPrefix(out, prefix) {
					t.Fatalf("%v, %d bytes: %q, %v; want the prefix kept", a, size, out[:6], err)
				}
				stored := out[len(prefix):]
				if len(stored) > size+1 {
					t.Errorf("%v made %d bytes of %d", a, len(stored), size)
				}
				for _, reader := range readers {
					if got, err := reader.Decode(stored); err != nil || !bytes.Equal(got, value) {
						t.Errorf("%v, %d bytes: got %d bytes back, %v", a, size, len(got), err)
					}
				}
			}
		}
	}
}

// TestWhatIsCompressed: from the threshold on, if it gets smaller; the first byte says which.
func TestWhatIsCompressed(t *testing.T) {
	const plain, s2, zstd = 0, 1, 2
	for _, c := range []struct {
		opts  compresscodec.Options[[]byte]
		value []byte
		kind  byte
	}{
		{compresscodec.Options[[]byte]{}, text(1023), plain},
		{compresscodec.Options[[]byte]{}, text(1024), s2},
		{compresscodec.Options[[]byte]{Algorithm: compresscodec.Zstd}, text(1023), plain},
		{compresscodec.Options[[]byte]{Algorithm: compresscodec.Zstd}, text(1024), zstd},
		{compresscodec.Options[[]byte]{Threshold: 100}, text(99), plain},
		{compresscodec.Options[[]byte]{Threshold: 100}, text(100), s2},
		{compresscodec.Options[[]byte]{Threshold: -1}, text(64), s2},
		{compresscodec.Options[[]byte]{Threshold: -1}, nil, plain},
		{compresscodec.Options[[]byte]{Threshold: -1}, noise(64), plain},
		{compresscodec.Options[[]byte]{}, noise(5000), plain},
		{compresscodec.Options[[]byte]{Algorithm: compresscodec.Zstd}, noise(5000), plain},
		{compresscodec.Options[[]byte]{Algorithm: compresscodec.Zstd, Threshold: -1}, nil, plain},
	} {
		out, err := open(t, c.opts).Append(nil, c.value)
		if err != nil || out[0] != c.kind {
			t.Errorf("%+v, %d bytes: kind %d, %v; want %d", c.opts, len(c.value), out[0], err, c.kind)
		}
		if c.kind != plain && len(out) > len(c.value) {
			t.Errorf("%+v: %d bytes became %d", c.opts, len(c.value), len(out))
		}
		if c.kind == plain && !bytes.Equal(out[1:], c.value) {
			t.Errorf("%+v: %q is stored as %q", c.opts, c.value, out)
		}
	}
}

// TestTooLargeForAppend: what Decode would refuse is not stored in the first place.
func TestTooLargeForAppend(t *testing.T) {
	for _, a := range algorithms {
		c := open(t, compresscodec.Options[[]byte]{Algorithm: a, MaxDecoded: 5000})
		out, err := c.Append([]byte("x"), text(5001))
		if !errors.Is(err, cacheguard.ErrTooLarge) || string(out) != "x" {
			t.Errorf("%v: %q, %v; want what was there, and ErrTooLarge", a, out, err)
		}
		out, err = c.Append(nil, text(5000))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Decode(out); err != nil || len(got) != 5000 {
			t.Errorf("%v: %d bytes, %v; want all 5000", a, len(got), err)
		}
	}
}

type failing struct{}

var errInner = errors.New("inner codec failed")

func (failing) Append(dst []byte, _ string) ([]byte, error) { return append(dst, "half"...), errInner }
func (failing) Decode([]byte) (string, error)               { return "", errInner }

func TestInnerCodecFails(t *testing.T) {
	c := open(t, compresscodec.Options[string]{Inner: failing{}})
	if out, err := c.Append([]byte("x"), "v"); !errors.Is(err, errInner) || string(out) != "x" {
		t.Errorf("Append: %q, %v; want what was there, and the inner codec's error", out, err)
	}
	if _, err := c.Decode([]byte{0, 'v'}); !errors.Is(err, errInner) {
		t.Errorf("Decode: %v; want the inner codec's error", err)
	}
}

type named string

func (named) Append(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }
func (named) Decode(src []byte) (string, error)           { return string(src), nil }
func (n named) Name() string                              { return string(n) }

// TestNames: the inner codec's name counts, the algorithm doesn't.
func TestNames(t *testing.T) {
	name := func(inner cacheguard.Codec[string], a compresscodec.Algorithm) string {
		return open(t, compresscodec.Options[string]{Inner: inner, Algorithm: a}).Name()
	}
	seen := map[string]cacheguard.Codec[string]{}
	for _, inner := range []cacheguard.Codec[string]{nil, failing{}, named(""), named("json"), named("compress"), named("compress(json)")} {
		n := name(inner, compresscodec.S2)
		if n != name(inner, compresscodec.Zstd) {
			t.Errorf("%T %v: the name depends on the algorithm", inner, inner)
		}
		if other, ok := seen[n]; ok {
			t.Errorf("%#v and %#v are both called %q", inner, other, n)
		}
		seen[n] = inner
		if n == "json" || n == "" {
			t.Errorf("%#v: with and without compression it is called %q", inner, n)
		}
	}
	if got := open(t, compresscodec.Options[struct{}]{}).Name(); got != "compress(json)" {
		t.Errorf("by default it is called %q", got)
	}
}

// TestManyGoroutines share a codec and get their own values back.
func TestManyGoroutines(t *testing.T) {
	for _, a := range algorithms {
		c := open(t, compresscodec.Options[[]byte]{Algorithm: a})
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				for round := range 20 {
					value := bytes.Repeat([]byte{byte(i), byte(round), 7}, 1000+100*i)
					out, err := c.Append(nil, value)
					if err != nil {
						t.Error(err)
						return
					}
					if got, err := c.Decode(out); err != nil || !bytes.Equal(got, value) {
						t.Errorf("%v: got other bytes back, %v", a, err)
					}
				}
			})
		}
		all.Wait()
	}
}

// TestDecodeLeavesItsSource alone, and what it returns is its own once it was compressed.
func TestDecodeLeavesItsSource(t *testing.T) {
	for _, a := range algorithms {
		c := open(t, compresscodec.Options[[]byte]{Algorithm: a})
		stored, err := c.Append(nil, text(5000))
		if err != nil {
			t.Fatal(err)
		}
		before := bytes.Clone(stored)
		got, err := c.Decode(stored)
		if err != nil || !bytes.Equal(before, stored) {
			t.Fatalf("%v: Decode changed its source, %v", a, err)
		}
		clear(stored)
		if _, err := c.Decode(before); err != nil || !bytes.Equal(got, text(5000)) {
			t.Errorf("%v: the value changed with the bytes it came from, %v", a, err)
		}
	}
}
