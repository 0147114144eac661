package middleware

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

var testCodec = codec{maxBody: 4 << 20}

var goldenResponses = map[string]*response{
	"plain": {
		key: "http://shop.example/catalog?page=2", status: 200, age: 1500 * time.Millisecond,
		header: http.Header{"Cache-Control": {"max-age=60"}, "Content-Length": {"4"},
			"Date": {"Sat, 21 Nov 2026 20:00:00 GMT"},
			"Link": {"</1>", "</2>"}},
		body: []byte("lamp"), guessed: true,
	},
	"variant": {
		key: "https://shop.example/\x1fgstaff", vary: []string{"Accept-Language", "Foo"},
		selected: "~(2 de)-", status: 404,
		mustRevalidate: true,
		header:         http.Header{"Content-Type": {}, "Vary": {"Accept-Language, Foo"}},
		trailer:        http.Header{"Sum": {"1"}}, body: []byte("\x00\xff"), personal: true,
	},
	"unshared": {key: "http://shop.example/me", unshared: true},
}

// The files are responses that another program has to read. They never change for a version of the
// codec.
func TestGoldenResponses(t *testing.T) {
	for name, res := range goldenResponses {
		file := filepath.Join("testdata", name+".v2.hex")
		encoded, err := testCodec.Append(nil, res)
		if err != nil {
			t.Fatal(name, err)
		}
		if *update {
			if err := os.WriteFile(file, []byte(hex.EncodeToString(encoded)+"\n"),
				0o644); err != nil {
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
		if !bytes.Equal(encoded, want) {
			t.Errorf("%s: the form changed:\n got %x\nwant %x", name, encoded, want)
		}
		got, err := testCodec.Decode(want)
		if err != nil {
			t.Fatal(name, err)
		}
		if !reflect.DeepEqual(got, res) {
			t.Errorf("%s: %+v, want %+v", name, got, res)
		}
	}
	if name := testCodec.Name(); name != "http-response-2" {
		t.Errorf("name %q", name)
	}
}

// Every response that can be stored is decoded as it was, and has one form.
func TestResponsesComeBack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func(most int) string {
		b := make([]byte, random.IntN(most))
		for i := range b {
			b[i] = "ab \t\"%\xff"[random.IntN(7)]
		}
		return string(b)
	}
	header := func(most int) http.Header {
		var h http.Header
		for range random.IntN(most) {
			if h == nil {
				h = http.Header{}
			}
			name := http.CanonicalHeaderKey("x-" + strconv.Itoa(random.IntN(1000)))
			h[name] = []string{}
			for range random.IntN(4) {
				h[name] = append(h[name], text(200))
			}
		}
		return h
	}
	for range 2000 {
		res := &response{
			key: "http://h/" + text(300), selected: text(300), status: 200 + random.IntN(800),
			age:      time.Duration(random.Int64N(math.MaxInt64)),
			unshared: random.IntN(2) == 0, mustRevalidate: random.IntN(2) == 0, header: header(20),
			trailer: header(3),
		}
		for name := range header(5) {
			res.vary = append(res.vary, name)
		}
		slices.Sort(res.vary)
		if n := random.IntN(1000); n > 0 && mayHaveBody(res.status) {
			res.body = []byte(strings.Repeat("x", n))
			if res.header != nil && random.IntN(2) == 0 {
				res.header["Content-Length"] = []string{strconv.Itoa(n)}
			}
		}
		encoded, err := testCodec.Append([]byte("before"), res)
		if err != nil {
			t.Fatalf("%+v: %v", res, err)
		}
		rest, found := bytes.CutPrefix(encoded, []byte("before"))
		if !found {
			t.Fatal("what stood before is gone")
		}
		got, err := testCodec.Decode(rest)
		if err != nil {
			t.Fatalf("%+v: %v", res, err)
		}
		if !reflect.DeepEqual(got, res) {
			t.Fatalf("%+v\nwant %+v", got, res)
		}
	}
}

// The parts of a decoded response share one array. An append to one part changes no other part, nor
// the bytes from which it was decoded.
func TestDecodedPartsAreApart(t *testing.T) {
	encoded, err := testCodec.Append(nil, goldenResponses["variant"])
	if err != nil {
		t.Fatal(err)
	}
	res, err := testCodec.Decode(encoded[:len(encoded):len(encoded)])
	if err != nil {
		t.Fatal(err)
	}
	_ = append(res.vary, "x")
	_ = append(res.header["Vary"], "x")
	_ = append(res.header["Content-Type"], "x")
	_ = append(res.trailer["Sum"], "x")
	_ = append(res.body, "x"...)
	if !reflect.DeepEqual(res, goldenResponses["variant"]) {
		t.Errorf("%+v", res)
	}
	roomy := append(encoded, "after"...)
	res, err = testCodec.Decode(roomy[:len(encoded)])
	if err != nil {
		t.Fatal(err)
	}
	_ = append(res.body, "x"...)
	if string(roomy[len(encoded):]) != "after" {
		t.Error("appending to the body writes over what stands behind it")
	}
	if &res.body[0] != &roomy[len(encoded)-len(res.body)] {
		t.Error("the body has been copied")
	}
}

func TestWhatCantBeStored(t *testing.T) {
	many := func(n int) http.Header {
		h := http.Header{}
		for i := range n {
			h["X-"+strconv.Itoa(i)] = []string{""}
		}
		return h
	}
	h := func(name string, values ...string) http.Header { return http.Header{name: values} }
	for name, res := range map[string]*response{
		"nothing":                     nil,
		"no status":                   {},
		"an interim status":           {status: 103},
		"a status too high":           {status: 1000},
		"a status that wraps":         {status: 65536 + 200},
		"an interim status, unshared": {status: 103, unshared: true},
		"an age below zero":           {status: 200, age: -1},
		"too large a body":            {status: 200, body: make([]byte, 101)},
		"a body where none can be":    {status: 204, body: []byte("x")},
		"a body of a 304":             {status: 304, body: []byte("x")},
		"a name in small letters":     {status: 200, header: h("foo", "1")},
		"no name":                     {status: 200, header: h("", "1")},
		"a name with a line break":    {status: 200, header: h("Foo\r\nBar", "1")},
		"a name with a colon":         {status: 200, header: h("Foo:", "1")},
		"a value with a line break":   {status: 200, header: h("Foo", "1\r\nBar: 2")},
		"a value with a line feed":    {status: 200, header: h("Foo", "1\nBar: 2")},
		"a value with a NUL":          {status: 200, header: h("Foo", "1", "\x00")},
		"a value with DEL":            {status: 200, header: h("Foo", "\x7f")},
		"chunks":                      {status: 200, header: h("Transfer-Encoding", "chunked")},
		"a connection":                {status: 200, header: h("Connection", "close")},
		"an age among fields":         {status: 200, header: h("Age", "1")},
		"a trailer announced":         {status: 200, header: h("Trailer", "A")},
		"a wrong trailer":             {status: 200, trailer: h("Foo", "1\r\n")},
		"a length in the trailer":     {status: 200, trailer: h("Content-Length", "0")},
		"a wrong length": {
			status: 200, header: h("Content-Length", "2"), body: []byte("x"),
		},
		"a length with a plus": {
			status: 200, header: h("Content-Length", "+1"), body: []byte("x"),
		},
		"a length twice": {
			status: 200, header: h("Content-Length", "1", "1"), body: []byte("x"),
		},
		"no length": {
			status: 200, header: h("Content-Length"), body: []byte("x"),
		},
		"too many fields": {status: 200, header: many(mostFields + 1)},
		"too many values": {
			status: 200, header: h("Foo", make([]string, mostValues+1)...),
		},
		"too much text": {
			status: 200, header: h("Foo", strings.Repeat("x", mostText)),
		},
		"a key too long":         {status: 200, key: strings.Repeat("x", mostText+1)},
		"it varies by too much":  {status: 200, vary: sortedNames(many(mostVary + 1))},
		"it varies by no name":   {status: 200, vary: []string{"*"}},
		"it varies in disorder":  {status: 200, vary: []string{"B", "A"}},
		"it varies by one twice": {status: 200, vary: []string{"A", "A"}},
	} {
		dst, err := (codec{maxBody: 100}).Append([]byte("before"), res)
		if !errors.Is(err, errNoResponse) || string(dst) != "before" {
			t.Errorf("%s: %q, %v", name, dst, err)
		}
	}
	for name, res := range map[string]*response{
		"most fields": {status: 200, header: many(mostFields)},
		"most values": {
			status: 200, header: h("Foo", make([]string, mostValues)...),
		},
		"most text": {
			status: 200, header: h("Foo", strings.Repeat("x", mostText-3)),
		},
		"most to vary by":           {status: 200, vary: sortedNames(many(mostVary))},
		"most body":                 {status: 200, body: make([]byte, 100)},
		"a length where no body is": {status: 204, header: h("Content-Length", "5")},
		"a length, and not the body": {
			status: 200, unshared: true, header: h("Content-Length", "5"),
		},
		"a status that nobody knows": {status: 999},
	} {
		small := codec{maxBody: 100}
		encoded, err := small.Append(nil, res)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := small.Decode(encoded); err != nil || !reflect.DeepEqual(got, res) {
			t.Errorf("%s: comes back otherwise: %v", name, err)
		}
	}
}

// Every kind of damage causes an error. The frame's checksum finds accidental damage. The codec has
// to find damage by a program that writes frames on purpose.
func TestDamagedResponses(t *testing.T) {
	good, err := testCodec.Append(nil, goldenResponses["variant"])
	if err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := testCodec.Decode(good[:n]); !errors.Is(err, errNoResponse) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	if _, err := testCodec.Decode(append(slices.Clone(good), 0)); !errors.Is(err, errNoResponse) {
		t.Errorf("a byte too many: %v", err)
	}
	small := codec{maxBody: 1}
	if _, err := small.Decode(good); !errors.Is(err, errNoResponse) {
		t.Errorf("a body above the limit: %v", err)
	}
	// A form with what Append would never write. numbers are the numbers after the status, texts
	// are the bytes after the numbers.
	form := func(flags byte, status uint16, texts string, numbers ...uint64) []byte {
		b := binary.BigEndian.AppendUint16([]byte{codecVersion, flags}, status)
		for _, n := range numbers {
			b = binary.AppendUvarint(b, n)
		}
		return append(b, texts...)
	}
	// age, key, selected, names, fields, trailers, body
	if _, err := testCodec.Decode(form(0, 200, "kx", 0, 1, 0, 0, 0, 0, 1)); err != nil {
		t.Fatalf("the form of this test is out of date: %v", err)
	}
	huge := uint64(math.MaxUint64)
	for name, damaged := range map[string][]byte{
		"nothing":           nil,
		"another version":   append([]byte{codecVersion + 1}, good[1:]...),
		"an unknown flag":   form(16, 200, "kx", 0, 1, 0, 0, 0, 0, 1),
		"no status":         form(0, 0, "kx", 0, 1, 0, 0, 0, 0, 1),
		"status 100":        form(0, 100, "kx", 0, 1, 0, 0, 0, 0, 1),
		"status 1000":       form(0, 1000, "kx", 0, 1, 0, 0, 0, 0, 1),
		"an age below zero": form(0, 200, "kx", huge, 1, 0, 0, 0, 0, 1),
		"a huge key":        form(0, 200, "kx", 0, huge, 0, 0, 0, 0, 1),
		"lengths that wrap": form(0, 200, "kx", 0, math.MaxInt64, math.MaxInt64, 0, 0, 0, 1),
		"too many names":    form(0, 200, "kx", 0, 1, 0, huge, 0, 0, 1),
		"too many fields":   form(0, 200, "kx", 0, 1, 0, 0, huge, 0, 1),
		"too many values":   form(0, 200, "Fx", 0, 0, 0, 0, 1, 1, huge, 0, 1),
		"too many trailers": form(0, 200, "kx", 0, 1, 0, 0, 0, huge, 1),
		"a huge body":       form(0, 200, "kx", 0, 1, 0, 0, 0, 0, huge),
		"a longer body":     form(0, 200, "kx", 0, 1, 0, 0, 0, 0, 2),
		"a shorter body":    form(0, 200, "kx", 0, 1, 0, 0, 0, 0, 0),
		"a body of a 204":   form(0, 204, "kx", 0, 1, 0, 0, 0, 0, 1),
		"a number in two ways": append(form(0, 200, "", 0, 1, 0, 0, 0, 0), 0x81, 0x00, 'k',
			'x'),
		"a field twice":            form(0, 200, "F1F2x", 0, 0, 0, 0, 2, 1, 1, 1, 1, 1, 1, 0, 1),
		"fields in disorder":       form(0, 200, "G1F2x", 0, 0, 0, 0, 2, 1, 1, 1, 1, 1, 1, 0, 1),
		"a field in small letters": form(0, 200, "f1x", 0, 0, 0, 0, 1, 1, 1, 1, 0, 1),
		"a field without a name":   form(0, 200, "1x", 0, 0, 0, 0, 1, 0, 1, 1, 0, 1),
		"a line break in a value":  form(0, 200, "F\nx", 0, 0, 0, 0, 1, 1, 1, 1, 0, 1),
		"a name to vary by":        form(0, 200, "fx", 0, 0, 0, 1, 1, 0, 0, 1),
		"another length":           form(0, 200, "Content-Length9x", 0, 0, 0, 0, 1, 14, 1, 1, 0, 1),
	} {
		res, err := testCodec.Decode(damaged)
		if !errors.Is(err, errNoResponse) || res != nil {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
}

// If a few bytes announce a large size, Decode doesn't allocate memory for it.
func TestDecodeAllocatesWhatIsThere(t *testing.T) {
	b := []byte{codecVersion, 0, 0, 200}
	for _, n := range []uint64{0, 0, 0, 0, mostFields} {
		b = binary.AppendUvarint(b, n)
	}
	for name, damaged := range map[string][]byte{
		"fields": b,
		"values": append(slices.Clone(b[:8]), 1, 1, 0xff, 0x1f),
		"body":   append(slices.Clone(b[:8]), 0, 0, 0xff, 0xff, 0x7f),
	} {
		var err error
		allocated := testing.AllocsPerRun(10, func() { _, err = testCodec.Decode(damaged) })
		if err == nil || allocated > 5 { // the error needs these
			t.Errorf("%s: %v, %v allocations", name, err, allocated)
		}
	}
}

// FuzzDecode shows that Decode returns an error for any bytes, or a response that can be served and
// stored again in the same form.
func FuzzDecode(f *testing.F) {
	for _, res := range goldenResponses {
		encoded, err := testCodec.Append(nil, res)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		before := slices.Clone(src)
		res, err := testCodec.Decode(src)
		if !bytes.Equal(src, before) {
			t.Fatal("src has been changed")
		}
		if err != nil {
			return
		}
		again, err := testCodec.Append(nil, res)
		if err != nil || !bytes.Equal(again, src) {
			t.Fatalf("%x was read, but is written as %x, %v", src, again, err)
		}
		for name, values := range res.header {
			for _, value := range values {
				if strings.ContainsAny(name+value, "\r\n\x00") || name == "" {
					t.Fatalf("%q: %q", name, value)
				}
			}
		}
		if len(src) < 1<<16 && res.status != 0 {
			for _, r := range servedRequests {
				res.serve(new(backlog), newTestWriter(), r, time.Second, "cacheguard; hit")
			}
		}
	})
}

func typicalResponse(body int) *response {
	return &response{
		key: "https://shop.example/catalog?page=2", status: 200, age: time.Second,
		header: http.Header{"Cache-Control": {"public, max-age=60"},
			"Content-Type": {"application/json"}, "Etag": {`"5f3a-17c2"`},
			"Date": {"Sat, 21 Nov 2026 20:00:00 GMT"}, "Content-Length": {strconv.Itoa(body)},
			"Vary":          {"Accept-Encoding"},
			"X-Request-Id":  {"0123456789abcdef"},
			"Last-Modified": {"Sat, 21 Nov 2026 19:00:00 GMT"}},
		vary: []string{"Accept-Encoding"}, selected: "~(7 br,gzip)",
		body: bytes.Repeat([]byte("x"), body),
	}
}

func BenchmarkCodec(b *testing.B) {
	res := typicalResponse(1024)
	encoded, err := testCodec.Append(nil, res)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("Append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			// The loader calls Append with a slice of this kind.
			if _, err := testCodec.Append(make([]byte, 80, 248), res); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(encoded)), "stored-B")
	})
	b.Run("Decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := testCodec.Decode(encoded); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestDecodeAllocates(t *testing.T) {
	encoded, err := testCodec.Append(nil, typicalResponse(1024))
	if err != nil {
		t.Fatal(err)
	}
	n := testing.AllocsPerRun(100, func() {
		if _, err := testCodec.Decode(encoded); err != nil {
			t.Error(err)
		}
	})
	if n > 6 {
		t.Errorf("%v allocations", n)
	}
}
