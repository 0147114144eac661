package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cacheguard/cacheguard/examples/catalog/internal/lab"
	"github.com/cacheguard/cacheguard/internal/browsertest"
	"github.com/cacheguard/cacheguard/internal/simulate"
)

// simulates asks a shop for a simulation.
func simulates(l *laboratory, query, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	newHandler([]string{"example.com"}, labPage, l.routes).ServeHTTP(w,
		httptest.NewRequest("POST", "/lab/simulate?"+query, strings.NewReader(body)))
	return w
}

// A fleet is simulated over an hour, without protection and with the requested policy.
func TestSimulates(t *testing.T) {
	l := newLaboratory(lab.World{}, nil)
	w := simulates(l, "replicas=5&rate=200&load=50ms&ttl=2m&policy=lease", "")
	var got struct {
		Plan    simulate.Config
		Results []simulate.Result
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d, %v: %s", w.Code, err, w.Body)
	}
	if p := got.Plan; p.Replicas != 5 || p.High != 200 || p.Low != 200 || p.Load != 50e6 ||
		p.TTL != 120e9 {
		t.Errorf("simulated %+v", p)
	}
	if r := got.Results; len(r) != 2 || r[0].Policy != "none" || r[1].Policy != "lease" ||
		len(r[0].Series) != simulatedSlices || r[1].Loads >= r[0].Loads {
		t.Errorf("showed %+v", r)
	}
	if w := simulates(l, "policy=none&rate=50&replicas=1", ""); w.Code != http.StatusOK ||
		strings.Count(w.Body.String(), `"policy"`) != 1 {
		t.Errorf("none beside none: %d, %s", w.Code, w.Body)
	}
}

// If a simulation isn't possible, the answer describes the error. Only a few simulations run at the
// same time.
func TestSimulatesNot(t *testing.T) {
	l := newLaboratory(lab.World{}, nil)
	for query, says := range map[string]string{
		"replicas=x":         `\"replicas\"=[\"x\"] can't be understood`,
		"replicas=0":         "Replicas is 0, it must be from 1",
		"replicas=1&rate=-1": "High is -1, it must be above 0",
		"load=1h":            "it must be above 0, and at most LoadTimeout",
		"ttl=1ms":            "TTL is 1ms, it must be from 1s",
		"rate=NaN":           "High is NaN",
		"policy=prayer":      `policy \"prayer\" is none of none, local, lock, lease, stale, early`,
		"keys=1":             `\"keys\"=[\"1\"] can't be understood`,
		"rate=1&rate=2":      `\"rate\"=[\"1\" \"2\"] can't be understood`,
	} {
		if w := simulates(l, query, ""); w.Code != http.StatusBadRequest ||
			!strings.Contains(w.Body.String(), says) {
			t.Errorf("%s: %d, %s", query, w.Code, w.Body)
		}
	}
	if w := simulates(l, "", "body"); w.Code != http.StatusBadRequest {
		t.Errorf("with a body: %d, %s", w.Code, w.Body)
	}
	for range mostSimulations {
		l.simulations <- struct{}{}
	}
	if w := simulates(l, "rate=50", ""); w.Code != http.StatusServiceUnavailable ||
		w.Header().Get("Retry-After") == "" {
		t.Errorf("one too many: %d, %v", w.Code, w.Header())
	}
	<-l.simulations
	l.stop()
	if w := simulates(l, "rate=50", ""); w.Code != http.StatusServiceUnavailable ||
		!strings.Contains(w.Body.String(), errStopping.Error()) {
		t.Errorf("of a shop that stops: %d, %s", w.Code, w.Body)
	}
}

// The page of the simulator draws the hour, again when a slider is moved, on a wide screen and on a
// phone, in light and dark.
func TestSimulatorPage(t *testing.T) {
	b := browsertest.Open(t)
	c := start(t, 1)
	shown := browsertest.Over(
		`/ loads without protection/.test(document.querySelector('#state').textContent)`)
	for name, dark := range map[string]bool{"light": false, "dark": true} {
		for _, width := range []int64{375, 1280} {
			b.Looks(t, width, dark)
			b.Do(t,
				chromedp.Navigate(c.urls[0]+
					"/simulator?replicas=5&rate=200&load=50ms&ttl=2m&policy=lease"), shown)
			if over := browsertest.Eval[int](t, b,
				`document.documentElement.scrollWidth - innerWidth`); over > 0 {
				t.Errorf("the page is %d pixels wider than the screen", over)
			}
			for _, found := range b.Inaccessible(t) {
				t.Errorf("%s at %d: %s", name, width, found)
			}
			b.Shoot(t, "simulator-"+name+map[int64]string{375: "-375", 1280: "-1280"}[width])
		}
	}
	if n := browsertest.Eval[int](t, b,
		`document.querySelectorAll('.chart path.line').length`); n != 4 {
		t.Errorf("%d lines are drawn, want 4", n)
	}
	const name = `document.querySelector('#loads').getAttribute('aria-label')`
	before := browsertest.Eval[string](t, b, name)
	if !strings.Contains(before, "no protection: ") ||
		!strings.Contains(before, "with protection: ") {
		t.Errorf("who can't see the chart hears %q", before)
	}
	// The arrow to the left.
	b.Do(t, chromedp.Focus(`input[name=rate]`, chromedp.ByQuery), chromedp.KeyEvent("\u0302"),
		browsertest.Over(`location.search.includes("rate=100") && `+name+` !== `+quoteJS(before)),
		shown)
	if said := browsertest.Eval[string](t, b,
		`document.querySelector('input[name=rate]').getAttribute('aria-valuetext')`); said !=
		"100" {
		t.Errorf("the slider says %q", said)
	}
	for _, p := range b.Said() {
		t.Error(p)
	}
}

// quoteJS returns a text as a JavaScript string.
func quoteJS(text string) string {
	quoted, _ := json.Marshal(text) // any string can be encoded
	return string(quoted)
}
