//go:build !race

package middleware_test

import "testing"

// A hit from the local tier allocates at most six times more often than the bare handler. The race detector allocates too.
func TestLocalHitAllocations(t *testing.T) {
	router, _ := benchRouter(t, nil)
	perRequest := func(path string) float64 {
		r, w := benchRequest(path), &unread{}
		return testing.AllocsPerRun(2000, func() {
			if !serveUnread(router, r, w) {
				t.Fatalf("%s: a response of %d bytes", path, w.n)
			}
		})
	}
	bare, local := perRequest("/bare"), perRequest("/local")
	t.Logf("bare %v, local hit %v allocations", bare, local)
	if local > bare+6 {
		t.Errorf("a local hit allocates %v times, the bare handler %v: %v more; want 6 at most", local, bare, local-bare)
	}
}
