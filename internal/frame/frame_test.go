package frame

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

var golden = map[string]struct {
	header Header
	body   string
}{
	"value": {Header{
		ID: [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, Created: time.UnixMicro(1_763_712_345_678_901),
		Soft: 10 * time.Minute, Revalidate: 5 * time.Minute, IfError: time.Hour, Took: 123456 * time.Microsecond, Codec: 0x6a736f6e,
	}, `{"name":"lamp"}`},
	"null":  {Header{ID: [16]byte{255}, Null: true, Created: time.UnixMicro(1), Soft: time.Millisecond, IfError: time.Second}, ""},
	"empty": {Header{Created: time.UnixMicro(1_763_712_345_000_000), Soft: time.Second}, ""},
}

// The files are what another program has to read; they never change for a version.
func TestGolden(t *testing.T) {
	for name, g := range golden {
		file := filepath.Join("testdata", name+".v1.hex")
		f := New(g.header, []byte(g.body))
		if *update {
			if err := os.WriteFile(file, []byte(hex.EncodeToString(f)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f, want) {
			t.Errorf("%s: the format changed:\n got %x\nwant %x", name, f, want)
		}
		h, body, err := Parse(want)
		if err != nil {
			t.Fatal(name, err)
		}
		if !h.Created.Equal(g.header.Created) {
			t.Errorf("%s: created %v, want %v", name, h.Created, g.header.Created)
		}
		h.Created = g.header.Created
		if h != g.header || string(body) != g.body {
			t.Errorf("%s: parsed %+v %q, want %+v %q", name, h, body, g.header, g.body)
		}
	}
}

// A flipped bit anywhere is an error: never another value.
func TestEveryBitCounts(t *testing.T) {
	for name, g := range golden {
		f := New(g.header, []byte(g.body))
		for bit := range len(f) * 8 {
			f[bit/8] ^= 1 << (bit % 8)
			if _, _, err := Parse(f); err == nil {
				t.Errorf("%s: a frame with bit %d of byte %d flipped was accepted", name, bit%8, bit/8)
			}
			f[bit/8] ^= 1 << (bit % 8)
		}
		for n := range f {
			if _, _, err := Parse(f[:n]); err == nil {
				t.Errorf("%s: the first %d of %d bytes were accepted", name, n, len(f))
			}
		}
		if _, _, err := Parse(append(f, 0)); err == nil {
			t.Errorf("%s: a byte too many was accepted", name)
		}
	}
}

func TestErrorsSayWhy(t *testing.T) {
	good := New(golden["value"].header, []byte("body"))
	change := func(edit func(f []byte)) []byte {
		f := bytes.Clone(good)
		edit(f)
		return f
	}
	resealed := func(edit func(f []byte)) []byte {
		return change(func(f []byte) {
			edit(f)
			binary.BigEndian.PutUint32(f[offSum:], sum(f))
		})
	}
	for _, c := range []struct {
		name string
		f    []byte
		want error
	}{
		{"nothing", nil, ErrTruncated},
		{"cut header", good[:HeaderSize-1], ErrTruncated},
		{"another version", change(func(f []byte) { f[0] = 2 }), ErrVersion},
		{"text", []byte(`{"name":"lamp"}`), ErrVersion},
		{"unknown flag", resealed(func(f []byte) { f[1] = 2 }), ErrFlags},
		{"checksum", change(func(f []byte) { f[len(f)-1]++ }), ErrChecksum},
		{"null with a body", resealed(func(f []byte) { f[1] = flagNull }), ErrHeader},
		{"endless", resealed(func(f []byte) { copy(f[offSoft:], []byte{255, 255}) }), ErrHeader},
		{"endless stale-while-revalidate", resealed(func(f []byte) { copy(f[offRevalidate:], []byte{255, 255}) }), ErrHeader},
		{"endless stale-if-error", resealed(func(f []byte) { copy(f[offIfError:], []byte{255, 255}) }), ErrHeader},
	} {
		if _, _, err := Parse(c.f); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

func TestID(t *testing.T) {
	f := New(golden["value"].header, nil)
	if want := golden["value"].header.ID; !bytes.Equal(ID(f), want[:]) {
		t.Errorf("got %x", ID(f))
	}
	for n, want := range map[int]int{0: 0, 1: 0, 2: 0, 3: 1, 10: 8, 18: 16, 19: 16} {
		if got := len(ID(f[:n])); got != want {
			t.Errorf("of %d bytes: %d bytes of id, want %d", n, got, want)
		}
	}
}

func TestDurationsSaturate(t *testing.T) {
	h, _, err := Parse(New(Header{Soft: -time.Second, Revalidate: math.MaxInt64, IfError: math.MaxInt64, Took: 1000 * time.Hour}, nil))
	if err != nil {
		t.Fatal(err)
	}
	if h.Soft != 0 || h.Took != math.MaxUint32*time.Microsecond || h.Hard() < h.Revalidate || h.Revalidate != h.IfError {
		t.Errorf("got %+v", h)
	}
}

// FuzzParse: any bytes are an error or a frame that says the same when it is written again.
func FuzzParse(f *testing.F) {
	for _, g := range golden {
		f.Add(New(g.header, []byte(g.body)))
	}
	f.Add([]byte{})
	f.Add([]byte{Version})
	f.Add(bytes.Repeat([]byte{Version}, HeaderSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= HeaderSize { // or nothing that is made up would ever get past the checksum
			b = bytes.Clone(b)
			binary.BigEndian.PutUint32(b[offSum:], sum(b))
		}
		h, body, err := Parse(b)
		if err != nil {
			return
		}
		if again := New(h, body); !bytes.Equal(again, b) {
			t.Errorf("%x was read as %+v %x, which is written as %x", b, h, body, again)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	f := New(golden["value"].header, make([]byte, 1024))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Parse(f); err != nil {
			b.Fatal(err)
		}
	}
}
