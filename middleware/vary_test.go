package middleware

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestVaryOf(t *testing.T) {
	var many []string
	for i := range mostVary {
		many = append(many, fmt.Sprintf("F%02d", i))
	}
	for _, c := range []struct {
		lines []string
		want  []string
		star  bool
	}{
		{nil, nil, false},
		{[]string{""}, nil, false},
		{[]string{" , "}, nil, false},
		{[]string{"accept-encoding"}, []string{"Accept-Encoding"}, false},
		{[]string{"Foo, bar", "foo,\tBaz ,"}, []string{"Bar", "Baz", "Foo"}, false},
		{
			[]string{"Foo, If-None-Match", "if-range,if-modified-since,range"},
			[]string{"Foo", "Range"}, false,
		},
		{[]string{"*"}, nil, true},
		{[]string{"*, *"}, nil, true},
		{[]string{", *"}, nil, true},
		{[]string{"", "*"}, nil, true},
		{[]string{"Foo, *"}, nil, true},
		{[]string{"Foo", "*"}, nil, true},
		{[]string{"Foo Bar"}, nil, true},
		{[]string{"Foo; Bar"}, nil, true},
		{[]string{"Foo\x00"}, nil, true},
		{[]string{strings.Join(many, ",")}, many, false},
		{[]string{strings.Join(many, ","), strings.Join(many, ",")}, many, false},
		{[]string{strings.Join(many, ","), "One-More"}, nil, true},
	} {
		names, star := varyOf(http.Header{"Vary": c.lines})
		if !slices.Equal(names, c.want) || star != c.star {
			t.Errorf("%q: %q, %v; want %q, %v", c.lines, names, star, c.want, c.star)
		}
	}
}

// normalised returns the header of a request with these lines of a field when Options.Normalize
// names the field.
func normalised(field string, lines []string) http.Header {
	r := &http.Request{Header: http.Header{}}
	if lines != nil {
		r.Header[field] = lines
	}
	s := &shaper{}
	if field != "Cookie" && field != "Authorization" {
		s.normal = []string{field}
	}
	return s.request(r).Header
}

// By default requests are equal only if a handler reads the same: the same number of lines, in the
// same order and spelling.
func TestSelectedByIsExact(t *testing.T) {
	for _, field := range []string{
		"Foo", "Cookie", "Authorization", "Accept", "Accept-Encoding", "Accept-Language",
	} {
		seen := map[string][]string{}
		for _, lines := range [][]string{
			nil, {}, {""}, {" "}, {"", ""}, {"de, en"}, {"de,en"}, {"de", "en"}, {"en", "de"},
			{"de", " en"}, {"DE, en"}, {"en, de"},
			{"de;q=1, en"}, {"de;q=1.0, en"}, {"de, en", ""}, {"de)(2 en"}, {"-"},
		} {
			s := selectedBy([]string{field}, http.Header{field: lines})
			if other, taken := seen[s]; taken && len(lines)+len(other) > 0 {
				t.Errorf("%s: %q and %q both select by %q", field, lines, other, s)
			}
			seen[s] = lines
		}
	}
}

func TestNormalize(t *testing.T) {
	type lines = []string
	for _, c := range []struct {
		field string
		same  []lines // each line of the table: requests that get one response
	}{
		{"Foo", []lines{{"1"}, {" 1 "}}},
		{"Foo", []lines{{"1,2"}, {"1, 2"}, {"1\t ,2 "}, {"1", "2"}, {"1 ", " 2"}}},
		{"Foo", []lines{{"2,1"}}},
		{"Foo", []lines{{"1 2"}}},
		{"Foo", []lines{{"1  2"}}},
		{"Foo", []lines{{"a"}}},
		{"Foo", []lines{{"A"}}},
		{"Foo", []lines{nil}},
		{"Foo", []lines{{""}, {" "}}},
		{"Foo", []lines{{","}, {"", ""}, {" , "}}},
		{"Foo", []lines{{`"1, 2"`}}},
		{"Foo", []lines{{`"1,2"`}, {`"1`, `2"`}}},
		{"Foo", []lines{{`"\", 1", 2`}, {`"\", 1",2`}}},
		{"Foo", []lines{{`"\",1",2`}}},
		{"Foo", []lines{{`5" , 6`}}},
		{"Foo", []lines{{`5", 6`}}},

		{"Cookie", []lines{{"a=1; b=2"}}},
		{"Cookie", []lines{{"a=1;b=2"}}},
		{"Cookie", []lines{{"a=1", "b=2"}}},
		{"Cookie", []lines{{"a=1,b=2"}}},
		{"Cookie", []lines{{"a=1, b=2"}}},
		{"Authorization", []lines{{`Digest a="1", b`}}},
		{"Authorization", []lines{{`Digest a="1",b`}}},

		{"Accept-Language",
			[]lines{{"en, de"}, {"de, en"}, {"eN, De"}, {" en ,   de"}, {"de", "en"}, {"en,de,,"},
				{"en;q=1,de;Q=1.000"},
				{"en,de,EN"}}},
		{"Accept-Language", []lines{{"en, de;q=0.5"}, {"de;q=0.50, en"}, {"en,de ; q=0.500"}}},
		{"Accept-Language", []lines{{"en, de;q=0.05"}}},
		{"Accept-Language", []lines{{"en, de;q=0"}, {"en, de;q=0.000"}}},
		{"Accept-Language", []lines{{"en"}}},
		{"Accept-Language", []lines{nil}},
		{"Accept-Language", []lines{{""}, {","}}},
		// A weight that is none: as it is.
		{"Accept-Language", []lines{{"en;q=2, de"}, {"en;q=2,de"}}},
		{"Accept-Language", []lines{{"de, en;q=2"}}},
		{"Accept-Language", []lines{{"de, en;q=1.5"}}},
		{"Accept-Language", []lines{{"EN;q=2, de"}}},
		{"Accept-Language", []lines{{"en;q=1;q=1"}}},
		{"Accept-Language", []lines{{"en;q"}}},
		{"Accept-Language", []lines{{"en;q = 1"}}},

		{"Accept-Encoding", []lines{{"gzip, br"}, {"BR,GZIP"}, {"br", "gzip;q=1.0"}}},
		{"Accept-Encoding", []lines{{"gzip, br;q=0"}}},
		{"Accept-Encoding", []lines{{"gzip"}}},
		{"Accept-Encoding", []lines{{"identity;q=0"}}},
		{"Accept-Encoding", []lines{{"*;q=0"}}},
		{"Accept-Encoding", []lines{{"gzip br"}}},

		{"Accept", []lines{{"text/html, */*;q=0.8"}, {"*/*;q=0.8,TEXT/html"}}},
		{"Accept", []lines{{"text/html;level=1"}, {"text/HTML ; LEVEL=1"}}},
		{"Accept", []lines{{"text/html;level=1;q=0.4"}, {"text/html;q=0.4;level=1"}}},
		{"Accept", []lines{{`text/html;v="a, b"`}}},
		{"Accept", []lines{{`text/html;v="a,b"`}}},
		{"Accept", []lines{{`text/html;v="A,b"`}}},
		{"Accept", []lines{{`text/html;v="a`}}},
		{"Accept", []lines{{"text"}}},
		{"Accept", []lines{{"text/"}}},
	} {
		for _, other := range c.same {
			got, want := selectedBy([]string{c.field}, normalised(c.field, other)),
				selectedBy([]string{c.field}, normalised(c.field, c.same[0]))
			if got != want {
				t.Errorf("%s: %q selects by %q, %q by %q", c.field, other, got, c.same[0], want)
			}
		}
	}
	// Requests in different rows above are different.
	all := map[string][]string{}
	for field, rows := range selectedRows {
		for _, row := range rows {
			s := selectedBy([]string{field}, normalised(field, row))
			if other, taken := all[field+s]; taken {
				t.Errorf("%s: %q and %q both select by %q", field, row, other, s)
			}
			all[field+s] = row
		}
	}
}

// selectedRows has values that all have different meanings.
var selectedRows = map[string][][]string{
	"Foo": {{"1"}, {"1,2"}, {"2,1"}, {"1 2"}, {"1  2"}, {"a"}, {"A"}, nil, {""}, {","}, {`"1, 2"`},
		{`"1,2"`}, {`"\", 1", 2`},
		{`"\",1",2`}, {`5" , 6`}, {`5", 6`}},
	"Cookie": {
		{"a=1; b=2"}, {"a=1;b=2"}, {"a=1", "b=2"}, {"a=1,b=2"}, {"a=1, b=2"}, {"a=1"}, {"A=1"},
		{""}, nil, {"", ""},
	},
	"Authorization": {{`Digest a="1", b`}, {`Digest a="1",b`}, {"Basic x"}, {"basic x"}, nil, {""}},
	"Accept-Language": {{"en, de"}, {"en, de;q=0.5"}, {"en, de;q=0.05"}, {"en, de;q=0"}, {"en"},
		nil, {""}, {"en;q=2, de"},
		{"de, en;q=2"}, {"EN;q=2, de"}, {"en;q=1;q=1"}, {"en;q"}, {"en;q = 1"}, {"en;q=0.5, de"},
		{"en, de, fr"},
		{"en;q=1.5, de"}, {"de, en;q=1.5"}, {"en;q=0.0001"}, {"en;q=0.x"}, {"en;q=0.5x"},
		{"en;q=05"}},
	"Accept": {{"text/html, */*;q=0.8"}, {"text/html;level=1"}, {"text/html;level=1;q=0.4"},
		{`text/html;v="a, b"`}, {`text/html;v="a,b"`},
		{`text/html;v="A,b"`}, {`text/html;v="a`}, {"text"}, {"text/"}, {`text/html;v=a;w=b`},
		{`text/html;v="a;w=b"`}},
}

func TestSelectedByNothing(t *testing.T) {
	if s := selectedBy(nil, http.Header{"Foo": {"1"}}); s != "" {
		t.Errorf("selected by %q", s)
	}
	// The fields of two names don't run into each other.
	names := []string{"A", "B"}
	seen := map[string]bool{}
	for _, h := range []http.Header{
		{"A": {"1"}, "B": {"2"}}, {"A": {"12"}, "B": {""}}, {"A": {"1)+(1 2"}}, {"A": {"1"}},
		{"B": {"1"}}, {"A": {"-"}}, {},
	} {
		seen[selectedBy(names, h)] = true
	}
	if len(seen) != 7 {
		t.Errorf("%d of 7: %v", len(seen), seen)
	}
}

func TestVariantKey(t *testing.T) {
	seen := map[string]bool{}
	for _, key := range []string{
		"http://h/", "https://h/\x1fga", variantKey("http://h/", nil, ""),
		variantKey("http://h/", []string{"A"}, "1"),
		variantKey("http://h/", []string{"A", "B"}, "1"),
		variantKey("http://h/", []string{"A"}, "B\x1f1"),
		variantKey("http://h/\x1fg", []string{"A"}, "1"),
		variantKey("http://h/\x1fg\x1fA", nil, "1"), variantKey("http://h/\x1fg", nil, "A\x1f1"),
		variantKey("http://h/\x1fg", []string{"A"}, "1\x1fB\x1f2"),
		variantKey("http://h/\x1fg\x1fA\x1f1", []string{"B"}, "2"),
	} {
		if seen[key] {
			t.Errorf("%q is there twice", key)
		}
		seen[key] = true
	}
}

func TestAnswers(t *testing.T) {
	req := http.Header{"Accept-Language": {"de"}}
	names := []string{"Accept-Language"}
	res := &response{key: "http://h/", vary: names, selected: selectedBy(names, req)}
	for _, c := range []struct {
		key  string
		req  http.Header
		want bool
	}{
		{"http://h/", req, true},
		{"http://h/", http.Header{"Accept-Language": {"de"}, "Foo": {"1"}}, true},
		{"http://h/", http.Header{"Accept-Language": {"DE"}}, false},
		{"http://h/", http.Header{"Accept-Language": {"en"}}, false},
		{"http://h/", http.Header{}, false},
		{"http://h/x", req, false},
	} {
		if got := res.answers(c.key, c.req); got != c.want {
			t.Errorf("%q, %v: %v", c.key, c.req, got)
		}
	}
	plain := &response{key: "http://h/"}
	if n := testing.AllocsPerRun(100, func() {
		if !plain.answers("http://h/", req) {
			t.Error("no answer")
		}
	}); n > 0 {
		t.Errorf("%v allocations without Vary", n)
	}
}

// FuzzNormalize compares Normalize with a second, coarser reading. Requests with the same string
// must be equal for the coarser reading, too. Without the option they must be identical.
func FuzzNormalize(f *testing.F) {
	f.Add(uint8(0), "a, b", "", false, "a", "b", true)
	f.Add(uint8(1), "a=1; b", "", false, "a=1;b", "", false)
	f.Add(uint8(2), "gzip;q=1.0, br", "", false, "BR", "gzip", true)
	f.Add(uint8(3), `text/html;v="a, b"`, "", false, `text/html;v="a,b"`, "", false)
	f.Add(uint8(4), "en;q=2", "", false, "EN;q=2", "", false)
	fields := []string{"Foo", "Cookie", "Accept-Encoding", "Accept", "Accept-Language"}
	f.Fuzz(func(t *testing.T, field uint8, a1, a2 string, aTwo bool, b1, b2 string, bTwo bool) {
		name := fields[int(field)%len(fields)]
		lines := func(first, second string, two bool) []string {
			if two {
				return []string{first, second}
			}
			return []string{first}
		}
		a, b := lines(a1, a2, aTwo), lines(b1, b2, bTwo)
		names := []string{name}
		sa, sb := selectedBy(names, http.Header{name: a}), selectedBy(names, http.Header{name: b})
		if (sa == sb) != slices.Equal(a, b) {
			t.Fatalf("%s: %q and %q select by %q and %q", name, a, b, sa, sb)
		}
		na := normalised(name, a)
		if again := normalised(name, na[name]); !slices.Equal(na[name], again[name]) {
			t.Fatalf("%s: %q becomes %q, and that %q", name, a, na[name], again[name])
		}
		sa, sb = selectedBy(names, na), selectedBy(names, normalised(name, b))
		if sa == selectedBy(names, http.Header{}) {
			t.Fatalf("%s: %q is like nothing", name, a)
		}
		if sa != sb {
			return
		}
		if x, y := coarse(name, a), coarse(name, b); x != y {
			t.Fatalf("%s: %q and %q both select by %q", name, a, b, sa)
		}
	})
}

// coarse ignores spaces. For a field with weights it also ignores order, case, repetitions, and the
// way in which a weight is written.
func coarse(name string, lines []string) string {
	if name == "Cookie" {
		return fmt.Sprintf("%q", lines)
	}
	joined := strings.Map(func(c rune) rune {
		if c == ' ' || c == '\t' {
			return -1
		}
		return c
	}, strings.Join(lines, ","))
	if name == "Foo" {
		return joined
	}
	var parts []string
	for part := range strings.FieldsFuncSeq(strings.ToLower(joined), func(c rune) bool {
		return c == ',' || c == ';'
	}) {
		if w, ok := strings.CutPrefix(part, "q="); ok && len(w) > 1 &&
			strings.TrimLeftFunc(w, unicode.IsDigit) != w {
			w = strings.TrimRight(strings.TrimRight(w, "0"), ".")
			part = "q=" + w
		}
		if part != "q=1" && part != "" && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
