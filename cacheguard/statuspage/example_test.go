package statuspage_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/statuspage"
)

// The page is an Observer of the caches, and a handler for those who may see what they do.
func Example() {
	page := statuspage.New(statuspage.Options{})
	store := memstore.New(memstore.Options{})
	defer store.Close()
	stock, err := cacheguard.New(store, cacheguard.Options[int]{Name: "stock", Observer: page})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stock.Close()
	if _, err := stock.Get(context.Background(), "42", func(context.Context) (int, error) {
		return 7, nil
	}); err != nil {
		fmt.Println(err)
	}

	admin := http.NewServeMux() // where only those get who are on call
	admin.Handle("/debug/cacheguard/", page)
	w := httptest.NewRecorder()
	admin.ServeHTTP(w, httptest.NewRequest("GET", "/debug/cacheguard/", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 200 text/html; charset=utf-8
}
