package middleware

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/cacheguard/cacheguard/cacheguard"
)

func TestCacheStatus(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name string
		by   string
		is   cacheStatus
		want string
	}{
		{"RFC 9211 2/nothing", "cg", cacheStatus{}, `cg`},
		{
			"RFC 9211 2.1/hit", "cg", cacheStatus{hit: true, ttl: 30 * s, hasTTL: true},
			`cg; hit; ttl=30`,
		},
		{
			"RFC 9211 2.2/fwd", "cg", cacheStatus{fwd: "uri-miss", stored: true},
			`cg; fwd=uri-miss; stored`,
		},
		{
			"RFC 9211 2.1/hit and fwd exclude one another", "cg",
			cacheStatus{hit: true, fwd: "stale"}, `cg; hit`,
		},
		{
			"RFC 9211 2.3/fwd-status", "cg", cacheStatus{fwd: "stale", fwdStatus: 304},
			`cg; fwd=stale; fwd-status=304`,
		},
		{
			"RFC 9211 2.4/ttl is rounded down", "cg",
			cacheStatus{hit: true, ttl: 2*s - 1, hasTTL: true}, `cg; hit; ttl=1`,
		},
		{
			"RFC 9211 2.4/ttl of what is stale", "cg",
			cacheStatus{hit: true, ttl: -5 * s, hasTTL: true}, `cg; hit; ttl=-5`,
		},
		{
			"RFC 9211 2.4/ttl of what is a little stale", "cg",
			cacheStatus{hit: true, ttl: -1, hasTTL: true}, `cg; hit; ttl=-1`,
		},
		{"RFC 9211 2.4/ttl=0", "cg", cacheStatus{hit: true, hasTTL: true}, `cg; hit; ttl=0`},
		{
			"RFC 9211 2.6/collapsed", "cg", cacheStatus{fwd: "uri-miss", collapsed: true},
			`cg; fwd=uri-miss; collapsed`,
		},
		{
			"RFC 9211 2.7/key", "cg", cacheStatus{hit: true, key: "http://a/b?c"},
			`cg; hit; key="http://a/b?c"`,
		},
		{
			"RFC 9651 4.1.6/key with quotation marks", "cg", cacheStatus{key: `a"b\c`},
			`cg; key="a\"b\\c"`,
		},
		{
			"RFC 9651 3.3.3/key beyond ASCII", "cg", cacheStatus{key: "ü\r\n\x00\x7f~ "},
			`cg; key="%C3%BC%0D%0A%00%7F~ "`,
		},
		{"RFC 9211 2.8/detail", "cg", cacheStatus{detail: "no-store"}, `cg; detail=no-store`},
		{
			"RFC 9211 2.8/detail of words", "cg", cacheStatus{detail: "too large"},
			`cg; detail="too large"`,
		},
		{
			"RFC 9211 2/a name that is no Token of RFC 9651", "1cg", cacheStatus{hit: true},
			`"1cg"; hit`,
		},
		{"all", "cg", cacheStatus{
			fwd: "stale", fwdStatus: 200, ttl: s, hasTTL: true, stored: true, collapsed: true,
			key: "k", detail: "d",
		},
			`cg; fwd=stale; fwd-status=200; ttl=1; stored; collapsed; key="k"; detail=d`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.is.line(c.by)
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if list, err := httpsfv.UnmarshalList([]string{"other; hit", got}); err != nil ||
				len(list) != 2 {
				t.Errorf("%s is no list member: %v", got, err)
			}
		})
	}
}

func TestCacheStatusAllocatesOnce(t *testing.T) {
	hit := cacheStatus{hit: true, ttl: time.Hour, hasTTL: true}
	if n := testing.AllocsPerRun(100, func() { hit.line("cacheguard") }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzCacheStatus(f *testing.F) {
	f.Add("cacheguard", "http://a/?b", "too large", int64(5))
	f.Add("1", "\"\\\x80", "é", int64(-1))
	f.Fuzz(func(t *testing.T, name, key, detail string, ttl int64) {
		line := cacheStatus{
			hit: true, ttl: time.Duration(ttl), hasTTL: true, key: key, detail: detail,
		}.line(name)
		list, err := httpsfv.UnmarshalList([]string{line})
		if err != nil || len(list) != 1 {
			t.Fatalf("%q: %v", line, err)
		}
		got, _ := list[0].(httpsfv.Item).Params.Get("key")
		if want := escaped(key); key != "" && got != want {
			t.Errorf("%q: key %q, want %q", line, got, want)
		}
		n, _ := list[0].(httpsfv.Item).Params.Get("ttl")
		if d := time.Duration(ttl) - time.Duration(n.(int64))*time.Second; d < 0 ||
			d >= time.Second {
			t.Errorf("%q: ttl is %d ns", line, ttl)
		}
	})
}

// escaped returns a key in printable ASCII.
func escaped(key string) string {
	var b strings.Builder
	for _, c := range []byte(key) {
		if c < ' ' || c > '~' {
			b.WriteString("%" +
				strings.ToUpper(string("0123456789abcdef"[c>>4])+string("0123456789abcdef"[c&15])))
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// Each reason has a word of its own. The documentation has a remedy for each word.
func TestReasonsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	_, doc, _ = bytes.Cut(doc, []byte("## Why is my page not stored?"))
	for r := cacheguard.Reason(1); r < cacheguard.Reasons; r++ {
		word := regexp.MustCompile("(?m)^\\| (`[^|]*, )?`" + regexp.QuoteMeta(r.String()) + "`[, ]")
		if r.String() == "" || reasons[r.String()] != r || !word.Match(doc) {
			t.Errorf("reason %d, %q: not documented", r, r)
		}
	}
	if s := cacheguard.Reasons.String(); !strings.HasPrefix(s, "Reason(") {
		t.Errorf("one more is called %q", s)
	}
}
