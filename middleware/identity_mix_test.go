package middleware_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// Many users send requests for a few resources in all ways at once, on two replicas, and the
// handler's responses change all the time. No user ever gets a part of another user's response, nor
// a part of a body in place of the whole body.
func TestUsersAreNeverMixedUp(t *testing.T) {
	for name, outside := range map[string]func(http.Handler) http.Handler{
		"plain":    func(h http.Handler) http.Handler { return h },
		"compress": chimiddleware.Compress(5),
		"chi":      chimiddleware.Timeout(40 * time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) { mixUsers(t, outside) })
	}
}

func mixUsers(t *testing.T, outside func(http.Handler) http.Handler) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	type user struct{}
	big := strings.Repeat("0123456789abcdef", 12<<10) // more bytes than are written at once
	handler := func(w http.ResponseWriter, r *http.Request) {
		name, _ := r.Context().Value(user{}).(string)
		if chi.URLParam(r, "id") == "" || r.Header.Get("X-User") != name {
			t.Errorf("the handler for %q sees X-User %q, parameter %q", name,
				r.Header.Get("X-User"), chi.URLParam(r, "id"))
		}
		h := w.Header()
		h.Add("Server-Timing", "handler")
		body, status := "for all "+chi.URLParam(r, "id"), 200
		mine := func() {
			body = "for " + name
			h.Set("X-For", name)
		}
		if rand.N(3) == 0 {
			body += big
		}
		switch rand.N(16) {
		case 0:
			mine()
			h.Set("Cache-Control", "private, max-age=60")
		case 1:
			mine()
			h.Set("Set-Cookie", "session="+name)
		case 2:
			mine()
			h.Set("Cache-Control", "no-store")
			status = 503
		case 3:
			mine()
			h.Set("Vary", "X-User")
			h.Set("Cache-Control", "max-age=1")
		case 4:
			h.Set("Etag", `"all"`)
			h.Set("Cache-Control", "no-cache")
		case 5:
			h.Set("Trailer", "X-Sum")
			h.Set(http.TrailerPrefix+"Set-Cookie", "session="+name)
		case 6:
			status = 503
		case 7:
			panic(http.ErrAbortHandler)
		case 8:
			h.Set("Content-Length", "100000000")
			_, _ = io.WriteString(w, body)
			return
		case 9:
			h.Set("Link", "</style>")
			w.WriteHeader(http.StatusEarlyHints)
		case 10:
			h.Set("Cache-Control", `max-age=1, private="x-for"`)
			h.Set("X-For", name)
		case 11:
			mine()
			h.Set("Vary", "*")
		case 12:
			panic("broken")
		}
		if r.Header.Get("If-None-Match") != "" && strings.HasPrefix(body, "for all") &&
			status == 200 && rand.N(2) == 0 {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		if rand.N(4) == 0 {
			<-time.After(rand.N(60 * time.Millisecond))
		}
		w.WriteHeader(status)
		half := len(body) / 2
		_, _ = io.WriteString(w, body[:half])
		if rand.N(8) == 0 {
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, body[half:])
		_, _ = io.WriteString(w, " END")
	}
	var urls []string
	var caches []*middleware.Cache
	for range 2 {
		cache, err := middleware.New(store, middleware.Options{
			DefaultTTL: 10 * time.Millisecond, StaleWhileRevalidate: 10 * time.Millisecond,
			StaleIfError: 20 * time.Millisecond,
			HitForMiss:   5 * time.Millisecond, LeaseTTL: 30 * time.Millisecond,
			LoadTimeout: 50 * time.Millisecond,
			WaitTimeout: 40 * time.Millisecond, LocalBytes: 1 << 20, LocalTTL: 5 * time.Millisecond,
			HideStatus: rand.N(2) == 0,
			Logger:     slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Close()
		caches = append(caches, cache)
		router := chi.NewRouter()
		router.Use(chimiddleware.RequestLogger(panicFormatter{&panicLog{}}),
			chimiddleware.Recoverer, func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					name := r.Header.Get("X-User")
					w.Header().Set("X-Front", name)
					w.Header().Add("Server-Timing", "user;desc="+name)
					h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), user{}, name)))
				})
			})
		router.With(outside, cache.Handler).HandleFunc("/things/{id}", handler)
		server := httptest.NewServer(router)
		defer server.Close()
		urls = append(urls, server.URL)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var all sync.WaitGroup
	for n := range 24 {
		all.Go(func() {
			name := fmt.Sprint("user", n)
			for range 40 {
				id := rand.N(3)
				ctx, cancel := context.WithTimeout(context.Background(), longWait)
				if rand.N(8) == 0 {
					time.AfterFunc(rand.N(20*time.Millisecond), cancel)
				}
				method := "GET"
				switch rand.N(10) {
				case 0:
					method = "HEAD"
				case 1:
					if rand.N(4) == 0 {
						method = "POST"
					}
				}
				r, err := http.NewRequestWithContext(ctx, method,
					fmt.Sprint(urls[rand.N(2)], "/things/", id), nil)
				if err != nil {
					cancel()
					t.Error(err)
					break
				}
				r.Host = "shop.example"
				r.Header.Set("X-User", name)
				switch rand.N(8) {
				case 0:
					r.Header.Set("Cache-Control", "no-cache")
				case 1:
					r.Header.Set("Authorization", name)
				case 2:
					r.Header.Set("If-None-Match", `"all"`)
				case 3:
					r.Header.Set("Range", "bytes=0-3")
				}
				checkMix(t, client, r, name, fmt.Sprint("for all ", id))
				cancel()
				if rand.N(40) == 0 {
					_ = caches[rand.N(2)].MarkStale(context.Background(),
						fmt.Sprint("/things/", id))
				}
			}
		})
	}
	all.Wait()
}

func checkMix(t *testing.T, client *http.Client, r *http.Request, name, common string) {
	w, err := client.Do(r)
	if err != nil {
		return
	}
	defer w.Body.Close()
	b, err := io.ReadAll(w.Body)
	body := string(b)
	of := func(values []string) {
		for _, value := range values {
			if value != "" && !strings.Contains(value+" ", name+" ") &&
				!strings.HasSuffix(value, "handler") {
				t.Errorf("%s got a field with %q: %d %v", name, value, w.StatusCode, w.Header)
			}
		}
	}
	for _, h := range []http.Header{w.Header, w.Trailer} {
		of(h["X-For"])
		of(h["Set-Cookie"])
		of(h["X-Front"])
		of(h["Server-Timing"])
	}
	if err != nil || r.Method == "HEAD" || w.StatusCode == 304 {
		return
	}
	mine := strings.HasPrefix(body, "for "+name+" ") || strings.HasPrefix(body, "for "+name+"0123")
	switch {
	case w.StatusCode == 206:
		if body != "for " {
			t.Errorf("%s got the part %q", name, body)
		}
	case strings.HasPrefix(body, "for "):
		if !strings.HasSuffix(body, " END") || !mine && !strings.HasPrefix(body, common) {
			t.Errorf("%s got %d with %d bytes %.40q", name, w.StatusCode, len(body), body)
		}
	case w.StatusCode == 200 && body != "":
		t.Errorf("%s got %d with %.40q", name, w.StatusCode, body)
	case w.StatusCode == 200:
		t.Errorf("%s got an empty 200: %v", name, w.Header)
	}
}
