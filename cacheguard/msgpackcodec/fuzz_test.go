package msgpackcodec_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/codectest"
	"github.com/cacheguard/cacheguard/cacheguard/msgpackcodec"
)

// FuzzDecode shows that Decode returns an error for any bytes, or a value that can be stored again,
// and needs bounded memory.
func FuzzDecode(f *testing.F) {
	out, err := msgpackcodec.Codec[everything]{}.Append(nil, everything{
		Words: []string{"a"}, Loose: map[string]any{"a": 1.5},
		Times: []time.Time{time.Unix(1<<31, 5)}, Many: make([]everything, 2),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(out)
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{
		0x81, 0xa5, 'L', 'o', 'o', 's', 'e', 0xd7, 0xff, 0xdf, 0xff, 0xff, 0xff, 0xff, 0, 0, 0,
	})
	f.Add(bytes.Repeat([]byte{0x91}, 20_000))
	f.Fuzz(func(t *testing.T, src []byte) {
		// A byte can be an element of everything.Many. The rest is for the fuzzer, which runs at
		// the same time.
		if costs := codectest.Allocated(func() {
			decodes[everything](t, src)
		}); costs > uint64(8<<20+4096*len(src)) {
			t.Fatalf("%d bytes took %d", len(src), costs)
		}
		if costs := codectest.Allocated(func() {
			decodes[any](t, src)
		}); costs > uint64(8<<20+1024*len(src)) {
			t.Fatalf("%d bytes took %d", len(src), costs)
		}
		decodes[map[string]any](t, src)
		decodes[[]map[any]any](t, src)
		decodes[recursive](t, src)
	})
}

func decodes[V any](t *testing.T, src []byte) {
	v, err := msgpackcodec.Codec[V]{}.Decode(src)
	if err != nil {
		return
	}
	out, err := msgpackcodec.Codec[V]{}.Append(nil, v)
	if err != nil {
		return // for example a text that is no address
	}
	if _, err := (msgpackcodec.Codec[V]{}).Decode(out); err != nil {
		t.Fatalf("%x is a %T, but %x, as which it was stored, is not: %v", src, v, out, err)
	}
}

// FuzzRoundTrip shows that any value is decoded as it was encoded.
func FuzzRoundTrip(f *testing.F) {
	type value struct {
		S string
		B []byte
		I int64
		F float64
		M map[string][]byte
		T time.Time
	}
	f.Add("", []byte(nil), int64(0), 0.0, int64(0), int64(0))
	f.Add("s", []byte{0xc1}, int64(math.MinInt64), math.NaN(), int64(1<<31), int64(0xdf<<22))
	f.Fuzz(func(t *testing.T, s string, b []byte, i int64, x float64, seconds, nanos int64) {
		in := value{s, b, i, x, map[string][]byte{s: b, "k": nil}, time.Unix(seconds, nanos)}
		stored, err := msgpackcodec.Codec[value]{}.Append(nil, in)
		if err != nil {
			t.Fatal(err)
		}
		out, err := msgpackcodec.Codec[value]{}.Decode(stored)
		if err != nil {
			t.Fatal(err)
		}
		if out.S != s || !bytes.Equal(out.B, b) || out.I != i ||
			math.Float64bits(out.F) != math.Float64bits(x) ||
			!bytes.Equal(out.M[s], in.M[s]) || len(out.M) != len(in.M) || !out.T.Equal(in.T) {
			t.Fatalf("%+v came back as %+v", in, out)
		}
	})
}
