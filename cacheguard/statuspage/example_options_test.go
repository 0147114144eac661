package statuspage_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/statuspage"
)

// The keys of this program are no secret, so the page shows them. A load of more than half a second
// is among what went wrong.
func ExampleNew() {
	page := statuspage.New(statuspage.Options{Keys: true, SlowLoad: 500 * time.Millisecond})

	onlyOnCall := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, password, _ := r.BasicAuth(); password != "secret" {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	admin := http.NewServeMux()
	admin.Handle("/debug/cacheguard/", onlyOnCall(page))

	w := httptest.NewRecorder()
	admin.ServeHTTP(w, httptest.NewRequest("GET", "/debug/cacheguard/", nil))
	fmt.Println(w.Code)
	// Output: 401
}
