package middleware

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestVariantsAdmit(t *testing.T) {
	const most = 10
	var v variants
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	admitted := func(from, to int) (n int) {
		for i := from; i < to; i++ {
			if v.admits("page", fmt.Sprint(i), most, now, now.Add(time.Hour)) {
				n++
			}
		}
		return n
	}
	if n := admitted(0, 1000); n != most {
		t.Errorf("%d at once", n)
	}
	if n := admitted(0, most); n != most {
		t.Errorf("%d of %d keep their places", n, most)
	}
	if n := admitted(0, 1000); n != most {
		t.Errorf("%d of those that come again much later", n)
	}
	if !v.admits("other", "1000", most, now, now.Add(time.Hour)) {
		t.Error("another page has no room")
	}
	// A variant that is requested again is stored, one a second, even if another client fills the
	// places.
	v.admits("page", "hot", most, now, now.Add(time.Hour))
	if !v.admits("page", "hot", most, now, now.Add(time.Hour)) {
		t.Error("what is asked for again is kept out")
	}
	admitted(2000, 2050)
	if n := admitted(2000, 2050); n != 0 {
		t.Errorf("%d more within a second", n)
	}
	if now = now.Add(replaceEvery); admitted(2000, 2050) != 1 {
		t.Error("not one more after a second")
	}
	if n := len(v.of[v.digest.of("page")].until); n != most {
		t.Errorf("%d have places", n)
	}
	if now = now.Add(2 * time.Hour); admitted(3000, 4000) != most {
		t.Error("those that are stale keep their places")
	}
	if !v.admits("page", "any", -1, now, now) {
		t.Error("there is a limit")
	}
}

func TestVariantsOfManyPages(t *testing.T) {
	var v variants
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for page := range 3 * mostCounted {
		for i := range 4 {
			v.admits(fmt.Sprint(page), fmt.Sprint(i), 2, now, now.Add(time.Hour))
		}
	}
	if len(v.of) != mostCounted || len(v.order) != mostCounted {
		t.Errorf("%d and %d pages are counted", len(v.of), len(v.order))
	}
	for range 1000 {
		v.admits("page", fmt.Sprint(now.UnixNano()), 1, now, now.Add(time.Hour))
		now = now.Add(time.Nanosecond)
	}
	if n := len(v.of[v.digest.of("page")].refused); n != mostRefused {
		t.Errorf("%d refused ones are remembered", n)
	}
}

// The memory for the counts doesn't depend on the length of the URLs and fields that clients
// choose.
func TestVariantsOfLongURLs(t *testing.T) {
	const pages, long = 64, 256 << 10
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	var v variants
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for page := range pages {
		for i := range 3 { // one is stored, one refused, one replaces
			v.admits(strings.Repeat(fmt.Sprint(page%10), long)+fmt.Sprint(page),
				strings.Repeat(fmt.Sprint(i), long/16), 1, now, now.Add(time.Hour))
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > pages*long/8 {
		t.Errorf("%d pages with URLs of %d KiB have %d KiB remembered", pages, long>>10, grown>>10)
	}
	if len(v.of) != pages {
		t.Errorf("%d of %d pages are counted", len(v.of), pages)
	}
	runtime.KeepAlive(&v)
}

// If a stale page varies and the other variants are found by it, Parts returns true for all
// requests that look at it, including requests that say who asks and look at the response that is
// stored for all. Under a variant's own key there is only one response.
func TestPartsForAllWhoLookThere(t *testing.T) {
	page := &response{key: "page", vary: []string{"Accept-Language"}, selected: "-"}
	whoAsks := identifiedKey("page")
	for _, c := range []struct {
		base, level string
		want        bool
	}{
		{"page", "page", true},
		{whoAsks, whoAsks, true},
		{whoAsks, "page", true},
		{"page", variantKey("page", page.vary, page.selected), false},
		{whoAsks, variantKey(whoAsks, page.vary, page.selected), false},
	} {
		if x := (&exchange{key: "page", base: c.base, level: c.level}); x.Parts(page) != c.want ||
			x.Parts(&response{key: "page"}) {
			t.Errorf("base %q, level %q: %v", c.base, c.level, !c.want)
		}
	}
}

// The fields by which resources vary are remembered for a bounded number of resources and a bounded
// time. Nothing else of a response is remembered.
func TestVariesHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v varies
		res := &response{vary: []string{"Accept", "X-Plan"}}
		for i := range 3 * mostVaried {
			v.learn(fmt.Sprint("k", i), res, time.Minute)
		}
		if len(v.of) > mostVaried {
			t.Errorf("%d are remembered", len(v.of))
		}
		last, asked := fmt.Sprint("k", 3*mostVaried-1), http.Header{"X-Plan": {"a"}}
		if got, want := v.level(last, asked),
			variantKey(last, res.vary, selectedBy(res.vary, asked)); got != want {
			t.Errorf("%q; want %q", got, want)
		}
		if got := v.level("other", asked); got != "" {
			t.Errorf("%q of what isn't known", got)
		}
		time.Sleep(time.Minute)
		if got := v.level(last, asked); got != "" {
			t.Errorf("%q after its time", got)
		}
	})
}
