package alltest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/statuspage"
	"github.com/cacheguard/cacheguard/internal/browsertest"
)

// The page can be read on a phone and on a wide screen, light and dark, by people who see it and by
// those who hear it; it shows what is new by itself, and stops when it is told to.
func TestPageInABrowser(t *testing.T) {
	page, store := statuspage.New(statuspage.Options{}), memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	c := openOn(t, store, cacheguard.Options[int]{
		Name: "stock of a shop with a very long name", Observer: page, ErrorTTL: -1,
		Audit: cacheguard.Audit{PerSecond: 100, Settle: time.Millisecond},
	})
	b := browsertest.Open(t)
	mux := http.NewServeMux()
	mux.Handle("/debug/cacheguard/", page)
	server := httptest.NewServer(mux)
	defer server.Close()

	stock := 1
	load := func(context.Context) (int, error) { return stock, nil }
	get := func(key string, load cacheguard.LoadFunc[int]) { _, _ = c.Get(t.Context(), key, load) }
	get("a", load)
	stock = 2 // and nobody says so
	for c.Stats().Wrong == 0 {
		get("a", load)
	}
	gate, began := make(chan struct{}), make(chan struct{})
	defer close(gate)
	go get("slow", func(ctx context.Context) (int, error) {
		close(began)
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return 1, ctx.Err()
	})
	get("b", func(context.Context) (int, error) {
		return 0, fmt.Errorf("dial tcp 10.0.0.1:5432: %s", "connection refused")
	})
	<-began

	b.Do(t, chromedp.Navigate(server.URL+"/debug/cacheguard/"),
		chromedp.WaitVisible("#pause", chromedp.ByQuery))
	for _, width := range []int64{375, 1280} {
		for name, dark := range map[string]bool{"light": false, "dark": true} {
			b.Looks(t, width, dark)
			if wide := browsertest.Eval[int64](t, b,
				"document.documentElement.scrollWidth"); wide > width {
				t.Errorf("at %d the page is %d wide", width, wide)
			}
			for _, found := range b.Inaccessible(t) {
				t.Errorf("%s at %d: %s", name, width, found)
			}
			b.Shoot(t, fmt.Sprintf("status-%d-%s", width, name))
		}
	}

	// It comes by itself, and while it is paused it doesn't.
	get("new", func(context.Context) (int, error) { return 0, fmt.Errorf("the first") })
	b.Do(t, browsertest.Over(`document.body.textContent.includes("the first")`))
	b.Do(t, chromedp.Focus("#pause", chromedp.ByQuery), chromedp.KeyEvent(" "))
	if pressed := browsertest.Eval[string](t, b,
		`document.getElementById("pause").getAttribute("aria-pressed")`); pressed != "true" {
		t.Errorf("the keyboard pauses nothing: %q", pressed)
	}
	get("new", func(context.Context) (int, error) { return 0, fmt.Errorf("the second") })
	b.Do(t,
		chromedp.Evaluate(`window.over = false; renew().then(() => { window.over = true }); true`,
			nil), browsertest.Over("window.over"))
	if browsertest.Eval[bool](t, b, `document.body.textContent.includes("the second")`) {
		t.Error("it is paused, and goes on")
	}
	// The same applies if it is paused while an answer is on its way.
	b.Do(t, chromedp.Evaluate(`window.over = false;
		document.getElementById("pause").click();
		renew().then(() => { window.over = true });
		document.getElementById("pause").click()`, nil), browsertest.Over("window.over"))
	if browsertest.Eval[bool](t, b, `document.body.textContent.includes("the second")`) {
		t.Error("it is paused while it is renewed, and goes on")
	}
	b.Do(t, chromedp.KeyEvent(" "),
		browsertest.Over(`document.body.textContent.includes("the second")`))
	for _, problem := range b.Said() {
		t.Error(problem)
	}
}
