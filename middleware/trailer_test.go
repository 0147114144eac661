package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cacheguard/cacheguard/middleware"
)

// A field that is for one client only is given to no other client in a trailer either, although
// other clients may already be waiting when the trailer comes.
func TestTrailerForOneClient(t *testing.T) {
	f := memoryFleet(t, 1, middleware.Options{})
	hold := f.gate()
	f.route("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", `max-age=60, private="x-user"`)
		w.Header().Set("Trailer", "X-Sum, X-User")
		_, _ = w.Write([]byte("all is well"))
		hold.pass()
		w.Header().Set("X-Sum", "11")
		w.Header().Set("X-User", r.Header.Get("X-Name"))
		w.Header().Set(http.TrailerPrefix+"Set-Cookie", "session="+r.Header.Get("X-Name"))
	})
	names := []string{"alice", "bob", "carol"}
	clients := f.startAll(len(names), func(i int) call { return get("/", "X-Name", names[i]) })
	f.awaitWaiting(len(names))
	hold.open()
	own := 0
	check := func(got received, name string) {
		t.Helper()
		got.want(t, 200, "all is well")
		if sum := got.trailer.Get("X-Sum"); sum != "11" {
			t.Errorf("%s got %q for X-Sum", name, sum)
		}
		user, cookie := got.trailer.Get("X-User"), got.trailer.Get("Set-Cookie")
		switch {
		case user == "" && cookie == "":
		case user == name && cookie == "session="+name:
			own++
		default:
			t.Errorf("%s got the trailer %v", name, got.trailer)
		}
	}
	for i, cl := range clients {
		check(cl.reply(t), names[i])
	}
	check(f.do(0, get("/", "X-Name", "dave")), "dave")
	if own > 1 {
		t.Errorf("%d clients got a trailer of their own from one run", own)
	}
	f.wantRuns(1, "all of them")
}

// A client with HTTP/1.0 gets no trailers. It gets the length of a stored response instead.
func TestLengthInsteadOfATrailer(t *testing.T) {
	h := newCache(t, middleware.Options{}).Handler(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			_, _ = w.Write([]byte("all is well"))
			w.Header().Set(http.TrailerPrefix+"X-Sum", "11")
		}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	for minor, want := range []string{"11", ""} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.ProtoMinor = minor
		h.ServeHTTP(w, r)
		got := w.Result()
		if length := got.Header.Get("Content-Length"); length != want ||
			(got.Trailer.Get("X-Sum") == "") != (want != "") {
			t.Errorf("HTTP/1.%d: length %q, trailer %v", minor, length, got.Trailer)
		}
	}
}
