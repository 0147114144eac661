package compresscodec_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/codectest"
	"github.com/cacheguard/cacheguard/cacheguard/compresscodec"
)

var algorithms = []compresscodec.Algorithm{compresscodec.S2, compresscodec.Zstd}

// open makes a codec from valid options.
func open[V any](t testing.TB, opts compresscodec.Options[V]) *compresscodec.Codec[V] {
	t.Helper()
	c, err := compresscodec.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// text returns n bytes that can be compressed well, and noise returns n bytes that can't.
func text(n int) []byte { return []byte(strings.Repeat("a category map, ", n/16+1))[:n] }
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// sizes are sizes around the limits at which the form of a stored value changes.
var sizes = []int{
	0, 1, 2, 31, 32, 255, 256, 257, 1023, 1024, 1025, 65535, 65536, 1 << 17, 1<<17 + 1, 1 << 20,
	9 << 20,
}

func TestConformance(t *testing.T) {
	var values [][]byte
	for _, size := range sizes {
		if size < 1<<20 { // larger sizes take too long
			values = append(values, text(size), noise(size))
		}
	}
	garbage := map[string][]byte{
		"nothing": nil, "an unknown first byte": append([]byte{3}, text(100)...),
		"s2: nothing": {1}, "zstd: nothing": {2},
		"s2: says 4 GiB":       append([]byte{1}, s2Block(math.MaxUint32, 0, 'x')...),
		"zstd: 1 GiB in 1 KiB": append([]byte{2}, frame{content: 1 << 30, blocks: 256}.bytes()...),
	}
	for name, a := range map[string]compresscodec.Algorithm{
		"S2": compresscodec.S2, "Zstd": compresscodec.Zstd,
	} {
		t.Run(name, func(t *testing.T) {
			codectest.Run(t, codectest.Subject[[]byte]{
				Codec:   open(t, compresscodec.Options[[]byte]{Algorithm: a, Threshold: -1}),
				Values:  values,
				Equal:   bytes.Equal,
				Garbage: garbage,
				Memory:  func(int) uint64 { return 1 << 20 }, // for the tables of the decoders
				Largest: func(v []byte) int { return len(v) + 1 },
				Stable:  true,
				// A decoded value shares the bytes of a value that is stored uncompressed.
				Shares: true,
			})
		})
		t.Run(name+", compressed", func(t *testing.T) {
			const most = 1 << 20
			codectest.Run(t, codectest.Subject[[]byte]{
				Codec: open(t, compresscodec.Options[[]byte]{Algorithm: a, MaxDecoded: most}),
				Values: [][]byte{
					append(text(3000), noise(500)...), text(5000),
					bytes.Repeat([]byte{1, 2, 7}, 1000),
				},
				Equal:     bytes.Equal,
				Refused:   map[string][]byte{"more than Decode takes": text(most + 1)},
				Stable:    true,
				Delimited: true,
			})
		})
	}
}

// A codec reads values that a codec with the other algorithm has stored.
func TestAlgorithmsReadEachOther(t *testing.T) {
	var codecs []*compresscodec.Codec[[]byte]
	for _, a := range algorithms {
		codecs = append(codecs, open(t, compresscodec.Options[[]byte]{Algorithm: a, Threshold: -1}))
	}
	for i, writer := range codecs {
		for _, size := range sizes {
			for _, value := range [][]byte{text(size), noise(size)} {
				const prefix = "prefix"
				out, err := writer.Append([]byte(prefix), value)
				if err != nil || !bytes.HasPrefix(out, []byte(prefix)) {
					t.Fatalf("%v, %d bytes: %v, or the prefix is gone", algorithms[i], size, err)
				}
				stored := out[len(prefix):]
				if len(stored) > size+1 {
					t.Errorf("%v made %d bytes of %d", algorithms[i], len(stored), size)
				}
				if got, err := codecs[1-i].Decode(stored); err != nil || !bytes.Equal(got, value) {
					t.Errorf("%v, %d bytes: got %d bytes back, %v", algorithms[i], size, len(got),
						err)
				}
			}
		}
	}
}

// A value is compressed from the threshold on, if this makes it smaller. The first byte says how it
// is stored.
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
			t.Errorf("%+v, %d bytes: kind %d, %v; want %d", c.opts, len(c.value), out[0], err,
				c.kind)
		}
		if c.kind != plain && len(out) > len(c.value) {
			t.Errorf("%+v: %d bytes became %d", c.opts, len(c.value), len(out))
		}
		if c.kind == plain && !bytes.Equal(out[1:], c.value) {
			t.Errorf("%+v: %q is stored as %q", c.opts, c.value, out)
		}
	}
}

// Append refuses a value that Decode would refuse, so it is not stored.
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

func (failing) Append(dst []byte, _ string) ([]byte, error) {
	return append(dst, "half"...), errInner
}
func (failing) Decode([]byte) (string, error) { return "", errInner }

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

// The name of the inner codec is part of the name, the algorithm isn't.
func TestNames(t *testing.T) {
	name := func(inner cacheguard.Codec[string], a compresscodec.Algorithm) string {
		return open(t, compresscodec.Options[string]{Inner: inner, Algorithm: a}).Name()
	}
	seen := map[string]cacheguard.Codec[string]{}
	for _, inner := range []cacheguard.Codec[string]{
		nil, failing{}, named(""), named("json"), named("compress"), named("compress(json)"),
	} {
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
