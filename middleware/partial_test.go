package middleware

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// partsOf returns a stored response that has these parts of a text.
func partsOf(text string, spans ...span) *response {
	res := &response{
		key: "k", status: http.StatusPartialContent, header: http.Header{"Etag": {`"1"`}},
	}
	for _, s := range spans {
		res.header["Content-Range"] = append(res.header["Content-Range"], s.contentRange(len(text)))
		res.body = append(res.body, text[s.start:s.end]...)
	}
	return res
}

// Parts may come in any order. The joined response has each byte at its place, and no byte that was
// in none of the parts.
func TestPartsTogether(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		size := 1 + rnd.IntN(30)
		text := make([]byte, size)
		for i := range text {
			text[i] = byte('a' + rnd.IntN(26))
		}
		some := func() span {
			start := rnd.IntN(size)
			return span{start, start + 1 + rnd.IntN(size-start)}
		}
		first := some()
		have, known := partsOf(string(text), first), make([]bool, size)
		mark := func(s span) {
			for i := s.start; i < s.end; i++ {
				known[i] = true
			}
		}
		mark(first)
		for range 12 {
			next := some()
			both, ok := have.with(partsOf(string(text), next), size)
			if !ok {
				t.Fatalf("seed %d: %v and %v can't be put together", seed, have.header, next)
			}
			mark(next)
			have = both
			if _, ok := have.parts(); !ok {
				t.Fatalf("seed %d: %v of %d bytes", seed, have.header, len(have.body))
			}
			for range 5 {
				s := some()
				got, ok := have.cut(s)
				if want := !slices.Contains(known[s.start:s.end], false); ok != want ||
					ok && string(got) != string(text[s.start:s.end]) {
					t.Fatalf("seed %d: %v of %v is %q, %v; want %q, %v", seed, s, have.header, got,
						ok, text[s.start:s.end], want)
				}
			}
		}
		all, ok := have.whole()
		if ok != !slices.Contains(known, false) || ok && string(all.body) != string(text) {
			t.Fatalf("seed %d: whole %v, %v", seed, ok, known)
		}
		if err := (codec{maxBody: size}).check(have); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func TestPartsHaveABound(t *testing.T) {
	text := strings.Repeat("x", 1000)
	have, ok := partsOf(text, span{0, 1}), true
	for i := 1; i <= mostParts; i++ {
		before := have
		have, ok = have.with(partsOf(text, span{10 * i, 10*i + 1}), 1000)
		if ok != (i < mostParts) {
			t.Fatalf("part %d: %v", i+1, ok)
		}
		if !ok {
			have = before
		}
	}
	if both, ok := have.with(partsOf(text, span{0, 151}), 1000); !ok ||
		len(both.header["Content-Range"]) != 1 {
		t.Errorf("what joins them is refused: %v", ok)
	}
	if _, ok := partsOf(text, span{0, 50}).with(partsOf(text, span{50, 101}), 100); ok {
		t.Error("more bytes than MaxBody")
	}
}

// A value in the store that is no part is never used as a part.
func TestDamagedParts(t *testing.T) {
	const text = "0123456789"
	for name, damage := range map[string]func(res *response){
		"whole":        func(res *response) { res.status = 200 },
		"no range":     func(res *response) { delete(res.header, "Content-Range") },
		"too short":    func(res *response) { res.body = res.body[1:] },
		"too long":     func(res *response) { res.body = append(res.body, 'x') },
		"out of order": func(res *response) { slices.Reverse(res.header["Content-Range"]) },
		"overlapping": func(res *response) {
			res.header["Content-Range"] = []string{"bytes 0-1/10", "bytes 1-2/10"}
		},
		"touching": func(res *response) {
			res.header["Content-Range"] = []string{"bytes 0-1/10", "bytes 2-3/10"}
		},
		"another length": func(res *response) { res.header["Content-Range"][1] = "bytes 4-5/11" },
		"huge": func(res *response) {
			res.header["Content-Range"][1] = "bytes 4-999999999999998/999999999999999"
		},
		"negative": func(res *response) { res.header["Content-Range"][0] = "bytes -1-0/10" },
		"garbage":  func(res *response) { res.header["Content-Range"][0] = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			res := partsOf(text, span{0, 2}, span{4, 6})
			if _, ok := res.cut(span{4, 6}); !ok {
				t.Fatal("not even without damage")
			}
			damage(res)
			if _, ok := res.parts(); ok {
				t.Error("taken for parts")
			}
			if _, ok := res.cut(span{0, 1}); ok {
				t.Error("cut")
			}
			if _, ok := res.with(partsOf(text, span{6, 7}), 100); ok {
				t.Error("put together")
			}
		})
	}
}

func FuzzContentRange(f *testing.F) {
	f.Add("bytes 0-4/10")
	f.Add("bytes 18446744073709551615-18446744073709551616/18446744073709551617")
	f.Add("bytes */10")
	f.Fuzz(func(t *testing.T, line string) {
		s, size, ok := parseContentRange(line)
		if !ok {
			return
		}
		if s.start < 0 || s.end <= s.start || s.end > size {
			t.Fatalf("%q: %v of %d", line, s, size)
		}
		if again, sameSize, ok := parseContentRange(s.contentRange(size)); !ok || again != s ||
			sameSize != size {
			t.Fatalf("%q, then %q", line, s.contentRange(size))
		}
	})
}

// If the parts of a resource can't be stored, its requests don't take a lease each time.
func TestUnstorablePartsAreRemembered(t *testing.T) {
	var p partial
	if !p.begins("a", 3) || p.begins("a", 3) || !p.begins("b", 3) {
		t.Fatal("one request of each resource at a time")
	}
	if !p.begins("d", 3) || p.begins("e", 3) {
		t.Fatal("only so many resources at a time")
	}
	p.ends("d")
	p.ends("a")
	if !p.begins("a", 3) {
		t.Error("not after its end")
	}
	p.ends("a")
	p.none("a", time.Hour)
	p.none("c", -time.Hour)
	if p.begins("a", 3) || !p.begins("c", 3) {
		t.Error("what can't be stored is stored, or never again")
	}
	for i := range 3 * mostUnparted {
		p.none(fmt.Sprint(i), time.Hour)
	}
	if len(p.not) > mostUnparted {
		t.Errorf("%d are remembered", len(p.not))
	}
}
