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
	"reflect"
	"slices"
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
		ID:      [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		Created: time.UnixMicro(1_763_712_345_678_901),
		Soft:    10 * time.Minute, Revalidate: 5 * time.Minute, IfError: time.Hour,
		Took: 123456 * time.Microsecond, Codec: 0x6a736f6e,
	}, `{"name":"lamp"}`},
	"null": {
		Header{
			ID: [16]byte{255}, Null: true, Created: time.UnixMicro(1), Soft: time.Millisecond,
			IfError: time.Second,
		}, "",
	},
	"unshared": {Header{
		ID: [16]byte{3}, Unshared: true, Created: time.UnixMicro(1_763_712_345_000_000),
		Soft: 2 * time.Minute,
		Extension: Extension{
			Note: []byte("note"), Tags: must(MakeTags([]string{"\x00soft", "hard"})),
		},
	}, "private lamp"},
	"tagged": {Header{
		ID: [16]byte{7}, Created: time.UnixMicro(1_763_712_345_000_000), Soft: time.Minute,
		Stamp: 1_763_712_344_999_999,
		Extension: Extension{
			Note: []byte("note"), Tags: must(MakeTags([]string{"shop:7", "lamps"})),
		},
	}, "lamp"},
	"marked": {Header{
		Created: time.UnixMicro(1_763_712_345_000_000), Soft: time.Minute,
		Marked: time.UnixMicro(1_763_712_346_000_000),
	}, "lamp"},
	"empty": {Header{Created: time.UnixMicro(1_763_712_345_000_000), Soft: time.Second}, ""},
}

func must(tags Tags, err error) Tags {
	if err != nil {
		panic(err)
	}
	return tags
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
		if !reflect.DeepEqual(h, g.header) || string(body) != g.body {
			t.Errorf("%s: parsed %+v %q, want %+v %q", name, h, body, g.header, g.body)
		}
	}
}

// A flipped bit anywhere is an error: never another value. In the mark it makes the value stale, no
// more.
func TestEveryBitCounts(t *testing.T) {
	for name, g := range golden {
		f := New(g.header, []byte(g.body))
		for bit := range len(f) * 8 {
			f[bit/8] ^= 1 << (bit % 8)
			h, _, err := Parse(f)
			if bit/8 >= MarkStart && bit/8 < HeaderSize {
				if err != nil || h.Marked.IsZero() {
					t.Errorf("%s: with bit %d of byte %d flipped: %+v, %v; want it marked", name,
						bit%8, bit/8, h, err)
				}
			} else if err == nil {
				t.Errorf("%s: a frame with bit %d of byte %d flipped was accepted", name, bit%8,
					bit/8)
			}
			f[bit/8] ^= 1 << (bit % 8)
		}
		for n := range len(f) {
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
		{"unknown flag", resealed(func(f []byte) { f[1] = 4 }), ErrFlags},
		{"checksum", change(func(f []byte) { f[len(f)-1]++ }), ErrChecksum},
		{"extension beyond the end", resealed(func(f []byte) { f[offExtension] = 1 }), ErrHeader},
		{"extension of nothing", resealed(func(f []byte) {
			f[offExtension+1], f[HeaderSize] = 1, 0
		}), ErrHeader},
		{"note beyond the extension", resealed(func(f []byte) {
			f[offExtension+1], f[HeaderSize] = 2, 2
		}), ErrHeader},
		{"tag beyond the extension", resealed(func(f []byte) {
			f[offExtension+1], f[HeaderSize], f[HeaderSize+1] = 3, 0, 2
		}), ErrHeader},
		{"empty tag", resealed(func(f []byte) {
			f[offExtension+1], f[HeaderSize], f[HeaderSize+1] = 2, 0, 0
		}), ErrHeader},
		{"stamp before 1970", resealed(func(f []byte) { f[offStamp] = 0x80 }), ErrHeader},
		{"null with a body", resealed(func(f []byte) { f[1] = flagNull }), ErrHeader},
		{"endless", resealed(func(f []byte) { copy(f[offSoft:], []byte{255, 255}) }), ErrHeader},
		{"endless stale-while-revalidate", resealed(func(f []byte) {
			copy(f[offRevalidate:], []byte{255, 255})
		}), ErrHeader},
		{"endless stale-if-error", resealed(func(f []byte) {
			copy(f[offIfError:], []byte{255, 255})
		}), ErrHeader},
	} {
		if _, _, err := Parse(c.f); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

func TestTags(t *testing.T) {
	long := strings.Repeat("x", MaxTag)
	for _, tags := range [][]string{
		nil, {"a"}, {"a", "b"}, {long, "\x00", long}, slices.Repeat([]string{long}, MaxTags),
	} {
		list, err := MakeTags(tags)
		if err != nil {
			t.Errorf("%q: %v", tags, err)
		}
		if got := list.All(); !slices.Equal(got, tags) {
			t.Errorf("%q became %q", tags, got)
		}
		h, _, err := Parse(New(Header{Extension: Extension{Tags: list, Note: []byte(long)}},
			[]byte("body")))
		if err != nil || !slices.Equal(h.Tags.All(), tags) || string(h.Note) != long {
			t.Errorf("%q: a frame has %q, %q, %v", tags, h.Tags.All(), h.Note, err)
		}
	}
	for _, tags := range [][]string{
		{""}, {"a", ""}, {long + "x"}, slices.Repeat([]string{"a"}, MaxTags+1),
	} {
		if _, err := MakeTags(tags); err == nil {
			t.Errorf("%d tags %.20q are taken", len(tags), tags)
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
	h, _, err := Parse(New(Header{
		Soft: -time.Second, Revalidate: math.MaxInt64, IfError: math.MaxInt64,
		Took: 1000 * time.Hour,
	}, nil))
	if err != nil {
		t.Fatal(err)
	}
	if h.Soft != 0 || h.Took != math.MaxUint32*time.Microsecond || h.Hard() < h.Revalidate ||
		h.Revalidate != h.IfError {
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

// What is left of a value is its tags, and an id that is no load's; of what has no tags nothing is
// left.
func TestRemnant(t *testing.T) {
	tagged := golden["tagged"]
	tags := tagged.header.Tags
	f := New(tagged.header, []byte(tagged.body))
	left := Remnant(f)
	want := append(make([]byte, HeaderSize), tags...)
	copy(want[IDStart:], tagged.header.ID[:])
	want[IDStart] ^= 0x80
	if !bytes.Equal(left, want) {
		t.Errorf("left is\n%x, want\n%x", left, want)
	}
	if got, ok := RemnantTags(left); !ok || !bytes.Equal(got, tags) {
		t.Errorf("its tags are %q, %v; want %q", got, ok, tags)
	}
	if again := Remnant(left); !bytes.Equal(again, left) {
		t.Errorf("what is left of that is %x; want the same", again)
	}
	if _, _, err := Parse(left); !errors.Is(err, ErrVersion) {
		t.Errorf("it parses as a frame: %v", err)
	}
	for name, f := range map[string][]byte{
		"without tags": New(golden["value"].header, []byte("body")), "empty": {}, "nil": nil,
		"cut in its tags": f[:HeaderSize+len(tags)-1], "cut in its header": f[:HeaderSize-1],
		"a remnant without tags":    left[:HeaderSize],
		"a remnant cut in its tags": left[:len(left)-1],
		"a note alone":              New(Header{Extension: Extension{Note: []byte("note")}}, nil),
	} {
		if left := Remnant(f); left != nil {
			t.Errorf("%s: %x is left; want nothing", name, left)
		}
		if tags, ok := RemnantTags(f); ok {
			t.Errorf("%s: it has the tags %q of a remnant", name, tags)
		}
	}
}

// FuzzRemnant: of any bytes nothing is left, or tags that a frame can have.
func FuzzRemnant(f *testing.F) {
	for _, g := range golden {
		whole := New(g.header, []byte(g.body))
		f.Add(whole)
		f.Add(Remnant(whole))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		left := Remnant(b)
		tags, ok := RemnantTags(left)
		if ok != (left != nil) {
			t.Fatalf("%x leaves %x, which is a remnant: %v", b, left, ok)
		}
		if !ok {
			return
		}
		if same, err := MakeTags(tags.All()); err != nil || !bytes.Equal(same, tags) {
			t.Errorf("%x leaves the tags %q, which are made as %q, %v", b, tags, same, err)
		}
		if again := Remnant(left); !bytes.Equal(again, left) {
			t.Errorf("%x leaves %x, and that %x", b, left, again)
		}
		if h, _, err := Parse(b); err == nil && !bytes.Equal(h.Tags, tags) {
			t.Errorf("%x has the tags %q and leaves %q", b, h.Tags, tags)
		}
	})
}

// Soft tags are told by their first byte, wherever they stand.
func TestSoftTags(t *testing.T) {
	tags := must(MakeTags([]string{"a", "\x00a", "long tag", "\x00"}))
	for i, want := range []bool{false, true, false, true} {
		if tags.Soft(i) != want {
			t.Errorf("tag %d is soft: %v", i, !want)
		}
	}
}

// A reader of values in another language reads docs/format.md: its table is the same as this
// package's.
func TestFormatHasThisFrame(t *testing.T) {
	table := func(file, margin string) string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(strings.ReplaceAll(string(b), "\n"+margin, "\n"),
			"\noffset size\n")
		lines, _, found := strings.Cut(rest, " body\n")
		if !found {
			t.Fatalf("%s has no table", file)
		}
		return lines
	}
	want, got := table("frame.go", "//\t"), table("../../docs/format.md", "")
	if want != got {
		t.Errorf("docs/format.md says:\n%s\nand this package:\n%s", got, want)
	}
}

// The head of a frame says of it what all of it says, or that it is too short.
func TestHead(t *testing.T) {
	h := Header{
		ID: [16]byte{1, 2}, Created: time.UnixMicro(1_700_000_000_000_000), Soft: time.Minute,
		Stamp:     5,
		Extension: Extension{Note: []byte("note"), Tags: must(MakeTags([]string{"a", "bc"}))},
	}
	f := New(h, []byte("body"))
	want, _, err := Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	end := len(f) - len("body")
	for n := range len(f) + 1 {
		got, err := Head(f[:n])
		switch {
		case n < end && !errors.Is(err, ErrTruncated):
			t.Errorf("of %d bytes: %v", n, err)
		case n >= end && (err != nil || !reflect.DeepEqual(got, want)):
			t.Errorf("of %d bytes: %+v, %v; want %+v", n, got, err, want)
		}
	}
	for _, at := range []int{0, 1} {
		other := bytes.Clone(f)
		other[at] = 9
		if _, err := Head(other); err == nil {
			t.Errorf("with another byte %d: no error", at)
		}
	}
	most := make([]string, MaxTags)
	for i := range most {
		most[i] = strings.Repeat("t", MaxTag)
	}
	h.Extension = Extension{Note: make([]byte, MaxNote), Tags: must(MakeTags(most))}
	if n := len(New(h, nil)); n != MaxHead {
		t.Errorf("the largest head has %d bytes; MaxHead is %d", n, MaxHead)
	}
}
