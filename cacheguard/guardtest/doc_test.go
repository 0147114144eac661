package guardtest_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
)

// The tests that the package's documentation shows.

// productPage is a handler as a program has it.
func productPage(
	products *cacheguard.Cache[string], query func(id string) cacheguard.LoadFunc[string],
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.URL.Query().Get("id")
		p, err := products.Get(r.Context(), id, query(id))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		fmt.Fprint(w, p)
	})
}

func TestOneQueryForAllRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		products := guardtest.NewOrigin(t, func(id string) string { return "product " + id })
		products.Inject(guardtest.Fault{Takes: 50 * time.Millisecond})
		fleet := guardtest.NewFleet(t, 3, cacheguard.Options[string]{TTL: time.Minute})

		guardtest.Together(t, 100, func(i int) {
			page := httptest.NewRecorder()
			handler := productPage(fleet.Replica(i%3), products.Load)
			handler.ServeHTTP(page, httptest.NewRequest("GET", "/product?id=42", nil))
			if page.Body.String() != "product 42" {
				t.Errorf("request %d got %d %q", i, page.Code, page.Body)
			}
		})
		if n := products.Loads(); n != 1 {
			t.Errorf("%d queries; want 1", n)
		}
	})
}

func TestNobodyWaitsForTheRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		price := guardtest.NewOrigin(t, func(string) int { return 100 })
		price.Inject(guardtest.Fault{Takes: time.Second})
		prices := guardtest.NewFleet(t, 1, cacheguard.Options[int]{
			TTL: time.Minute, StaleWhileRevalidate: time.Hour, Jitter: -1,
		}).Replica(0)
		get := func() int {
			v, err := prices.Get(t.Context(), "42", price.Load("42"))
			if err != nil {
				t.Fatal(err)
			}
			return v
		}

		get()
		price.Set("42", 120)
		time.Sleep(time.Minute) // the TTL is over
		began := time.Now()
		if v := get(); v != 100 || time.Since(began) != 0 {
			t.Errorf("got %d after %v; want the old price at once", v, time.Since(began))
		}
		time.Sleep(time.Second) // as long as the refresh takes
		synctest.Wait()         // and until it is stored
		if v := get(); v != 120 || price.Loads() != 2 {
			t.Errorf("got %d after %d loads; want the new price and one refresh", v, price.Loads())
		}
	})
}

func TestFailingOriginIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		price := guardtest.NewOrigin(t, func(string) int { return 100 })
		fleet := guardtest.NewFleet(t, 3, cacheguard.Options[int]{
			TTL: time.Minute, StaleIfError: time.Hour, Backoff: 30 * time.Second, Jitter: -1,
		})
		fleet.Stampede(t.Context(), "42", 1, price.Load("42"))
		time.Sleep(time.Minute)
		price.Inject(guardtest.Fault{Err: errors.New("no database")})
		for range 10 {
			answers := fleet.Stampede(t.Context(), "42", 20, price.Load("42"))
			if n := answers.Count(cacheguard.StatusStale); n != 60 {
				t.Errorf("%d of %d callers got the old price; %v", n, len(answers), answers.Err())
			}
			time.Sleep(time.Second)
		}
		if n := price.Loads(); n != 2 {
			t.Errorf("%d loads; want the first one, and one that failed within the back-off", n)
		}
	})
}

func TestDocumentationShowsTheseTests(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("doc_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var shown, block strings.Builder
	blocks := 0
	for line := range strings.Lines(string(doc) + "\n") {
		code, isCode := strings.CutPrefix(line, "//\t")
		switch {
		case isCode:
			block.WriteString(code)
		case line == "//\n" && block.Len() > 0 && !strings.HasSuffix(block.String(), "}\n}\n"):
			block.WriteString("\n") // a blank line of the code, or its end
		case block.Len() > 0:
			blocks++
			if text := strings.TrimSpace(block.String()); !strings.Contains(string(tests), text) {
				t.Errorf("this is in no test:\n%s", text)
			}
			shown.WriteString(block.String())
			block.Reset()
		}
	}
	if n := strings.Count(shown.String(), "func Test"); blocks != 3 || n != 3 {
		t.Errorf("the documentation has %d pieces of code with %d tests; want 3 with 3", blocks, n)
	}
}
