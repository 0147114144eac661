package middleware_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// The tests of this file send requests for a page in several languages, all at once, while the
// handler runs for one of them.

var languages = []string{"en", "de", "fr", "it", "ja"}

// speaking is a handler that answers in the language that the request asks for. It waits at two
// gates: before its header, and after its header. In a bubble of synctest, all handlers wait when
// the bubble is idle.
type speaking struct {
	header    []string                                 // fields of all responses, in pairs
	say       func(w http.ResponseWriter, lang string) // sends the head
	head, end chan struct{}                            // if closed, handlers at this gate continue

	mu         sync.Mutex // guards the fields below
	began      []string   // in this order
	here, most int        // runs at the same time
}

func newSpeaking(say func(w http.ResponseWriter, lang string), header ...string) *speaking {
	return &speaking{header: header, say: say, head: make(chan struct{}), end: make(chan struct{})}
}

func (s *speaking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	lang := r.Header.Get("Accept-Language")
	s.mu.Lock()
	s.began, s.here = append(s.began, lang), s.here+1
	s.most = max(s.most, s.here)
	head, end := s.head, s.end
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.here--
		s.mu.Unlock()
	}()
	<-head
	for i := 0; i < len(s.header); i += 2 {
		w.Header().Add(s.header[i], s.header[i+1])
	}
	s.say(w, lang)
	<-end
	fmt.Fprintf(w, "page in %s", lang)
}

// runs returns the runs that have begun since its last call. They are sorted, because runs that
// begin at the same moment do so in any order.
func (s *speaking) runs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := s.began
	s.began = nil
	slices.Sort(began)
	return began
}

// shut closes the gates again for the next runs.
func (s *speaking) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head, s.end = make(chan struct{}), make(chan struct{})
}

// visitors send requests for one page and keep the responses.
type visitors struct {
	t    *testing.T
	gone sync.WaitGroup
}

// come sends the requests of two visitors for each language, one after another, in this order.
func (v *visitors) come(h http.Handler, languages ...string) {
	for range 2 {
		for _, lang := range languages {
			v.gone.Go(func() {
				if page := asks(h, "GET", "/", "Accept-Language",
					lang).Body.String(); page != "page in "+lang {
					v.t.Errorf("%s: got %q", lang, page)
				}
			})
			synctest.Wait()
		}
	}
}

func wantRuns(t *testing.T, when string, got []string, want ...string) {
	t.Helper()
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		t.Errorf("%s: runs for %v have begun; want %v", when, got, want)
	}
}

// If the header of a running handler says by Vary that the page is for other requests, a request
// doesn't wait for the end of the run, whether the header is flushed or not. The requests for one
// variant have one run together.
func TestNobodyWaitsForAnothersVariant(t *testing.T) {
	written := func(w http.ResponseWriter, _ string) { w.WriteHeader(http.StatusOK) }
	for name, c := range map[string]struct {
		opts   middleware.Options
		say    func(w http.ResponseWriter, lang string)
		header []string
	}{
		"written": {say: written, header: []string{"Cache-Control", "max-age=60"}},
		"flushed": {say: func(w http.ResponseWriter, _ string) {
			_ = http.NewResponseController(w).Flush()
		}, header: []string{"Cache-Control", "max-age=60"}},
		"begun": {
			say: func(w http.ResponseWriter, _ string) {
				_, _ = w.Write(nil)
			}, header: []string{"Cache-Control", "max-age=60"},
		},
		"by option": {opts: middleware.Options{DefaultTTL: 1e9}, say: written},
		"strong": {
			opts: middleware.Options{StrongReads: true}, say: written,
			header: []string{"Cache-Control", "max-age=60"},
		},
		"not fresh": {say: written, header: []string{"Cache-Control", "max-age=0", "Etag", `"1"`}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpeaking(c.say, append(c.header, "Vary", "Accept-Language")...)
				h := newCache(t, c.opts).Handler(s)
				all := visitors{t: t}
				all.come(h, languages...)
				wantRuns(t, "before the first head", s.runs(), "en")
				close(s.head)
				synctest.Wait()
				wantRuns(t, "when the first head is written", s.runs(), languages[1:]...)
				all.come(h, "en", "it") // requests that come now wait for the running handlers
				wantRuns(t, "while all run", s.runs())
				close(s.end)
				all.gone.Wait()
				if name != "not fresh" { // which is for its own client only
					wantRuns(t, "when all are done", s.runs())
				}
			})
		})
	}
}

// The runs that begin in this way have slots, like all other runs.
func TestVariantsHaveSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpeaking(func(w http.ResponseWriter, _ string) {
			w.WriteHeader(http.StatusOK)
		}, "Cache-Control", "max-age=60", "Vary", "Accept-Language")
		h := newCache(t, middleware.Options{MaxLoads: 3}).Handler(s)
		all := visitors{t: t}
		all.come(h, languages...)
		close(s.head)
		synctest.Wait()
		if s.most != 3 {
			t.Errorf("%d runs side by side in 3 slots", s.most)
		}
		close(s.end)
		all.gone.Wait()
		if s.most != 3 || len(s.began) != len(languages) {
			t.Errorf("%d runs side by side in 3 slots, for %v; want one for each", s.most, s.began)
		}
	})
}

// While the Vary of a stale page is known, no request waits for another variant, neither in the
// process whose handler runs nor in another process. The requests that get a variant renew it, once
// in the fleet. This also holds for the variant whose Vary leads to the others.
func TestStaleVariantsAreRenewedSideBySide(t *testing.T) {
	for name, age := range map[string]string{
		"kept": "max-age=10", "good on error": "max-age=10, stale-if-error=600",
	} {
		for _, come := range [][]string{languages, languages[1:], {"fr", "en", "de"}} {
			t.Run(fmt.Sprint(name, " ", come), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSpeaking(func(w http.ResponseWriter, lang string) {
						w.Header().Set("Etag", `"`+lang+`"`)
					},
						"Cache-Control", age, "Vary", "Accept-Language")
					near, far := newPair(t, s)
					all := visitors{t: t}
					close(s.head)
					close(s.end)
					all.come(near, languages...)
					wantRuns(t, "at first", s.runs(), languages...)
					<-time.After(15 * time.Second)
					s.shut()
					all.come(near, come...)
					all.come(far, come...)
					wantRuns(t, "when all are stale", s.runs(), come...)
					close(s.head)
					close(s.end)
					all.gone.Wait()
					all.come(near, come...)
					all.come(far, come...)
					wantRuns(t, "when they are fresh again", s.runs())
					all.gone.Wait()
				})
			})
		}
	}
}

// If a page is not stored at all, another process learns its Vary when the first run has been
// stored. By then the variants that were requested in the first process have runs, too. Only
// variants that were requested in the other process alone begin a run then.
func TestVaryOfAColdPageIsKnownElsewhereWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpeaking(func(w http.ResponseWriter, _ string) {
			w.WriteHeader(http.StatusOK)
		}, "Cache-Control", "max-age=60", "Vary", "Accept-Language")
		near, far := newPair(t, s)
		all := visitors{t: t}
		all.come(near, "en", "de")
		all.come(far, "de", "en", "fr", "it")
		wantRuns(t, "before the first head", s.runs(), "en")
		close(s.head)
		synctest.Wait()
		wantRuns(t, "when the first head is written", s.runs(), "de")
		close(s.end)
		all.gone.Wait()
		wantRuns(t, "when the first page is stored", s.runs(), "fr", "it")
	})
}

// newPair returns a handler behind the caches of two processes on one store.
func newPair(t *testing.T, h http.Handler) (near, far http.Handler) {
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	open := func() http.Handler {
		cache, err := middleware.New(store, middleware.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cache.Close() })
		return cache.Handler(h)
	}
	return open(), open()
}

// As long as a stale page that nobody requests any more is kept, it only tells which fields select
// the other variants. Another variant has one run in the fleet each time it is stale. This run
// validates the variant, which is then fresh again. At last this variant takes the place of the
// page that nobody requests.
func TestStalePageOnlySaysWhatSelects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var runs []string
		near, far := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lang := r.Header.Get("Accept-Language")
			mu.Lock()
			runs = append(runs, lang+r.Header.Get("If-None-Match"))
			mu.Unlock()
			time.Sleep(time.Second)
			for _, field := range [][2]string{
				{"Cache-Control", "max-age=10"}, {"Vary", "Accept-Language"},
				{"Etag", `"` + lang + `"`},
			} {
				w.Header().Set(field[0], field[1])
			}
			if r.Header.Get("If-None-Match") != "" {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			fmt.Fprint(w, "page in ", lang)
		}))
		come := func(when string, ttl int, want ...string) {
			t.Helper()
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					w := asks([]http.Handler{near, far}[i%2], "GET", "/", "Accept-Language", "de")
					if w.Body.String() != "page in de" ||
						ttl > 0 &&
							!strings.Contains(w.Header().Get("Cache-Status"),
								fmt.Sprint("; hit; ttl=", ttl)) {
						t.Errorf("%s: got %q, %q", when, w.Body, w.Header()["Cache-Status"])
					}
				})
			}
			all.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(runs, want) {
				t.Errorf("%s: runs %q, want %q", when, runs, want)
			}
			runs = nil
		}
		asks(near, "GET", "/", "Accept-Language", "en")
		come("at first", 0, "en", "de")
		for age := 0; age < 3600; age += 20 {
			time.Sleep(5 * time.Second)
			come("while it is fresh", 5)
			time.Sleep(14 * time.Second)
			come("when it is stale", 0, `de"de"`)
		}
		time.Sleep(time.Minute)
		come("when the first one is gone", 0, "de")
		time.Sleep(20 * time.Second)
		come("when it has its place", 0, `de"de"`)
	})
}
