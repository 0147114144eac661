package statuspage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/statuspage"
)

// process is one whose caches have a page.
type process struct {
	*testing.T
	page  *statuspage.Page
	store *memstore.Store
}

func newProcess(t *testing.T, opts statuspage.Options) *process {
	p := &process{T: t, page: statuspage.New(opts), store: memstore.New(memstore.Options{})}
	t.Cleanup(func() { _ = p.store.Close() })
	if err := p.store.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func open[V any](p *process, opts cacheguard.Options[V]) *cacheguard.Cache[V] {
	p.Helper()
	opts.Observer, opts.Logger = p.page, slog.New(slog.DiscardHandler)
	c, err := cacheguard.New(p.store, opts)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = c.Close() })
	return c
}

// asked is the answer to a request.
func (p *process) asked(method, path string) *http.Response {
	w := httptest.NewRecorder()
	p.page.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Result()
}

func (p *process) body(path string) string {
	p.Helper()
	resp := p.asked("GET", path)
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		p.Fatalf("%s: %v, %v", path, resp.Status, err)
	}
	return string(b)
}

// shown is the JSON, as somebody else's program reads it.
type shown struct {
	Caches []struct {
		Name      string
		Instances int
		Mode      string
		Listening bool
		Troubles  []struct {
			Use, Server, Why string
			Text             string `json:"error"`
			Since, Last      time.Time
			Ago              time.Duration `json:"last_ago_ns"`
		}
		Changes      int
		LocalEntries int `json:"local_entries"`
		Answers      map[string]int
		HitRatio     float64 `json:"hit_ratio"`
		LoadsRunning int     `json:"loads_running"`
		LoadsQueued  int     `json:"loads_queued"`
		Leases       int
		Callers      int
		Unsent       int
		Compared     int
		Wrong        int
		Nines        *float64
		Loads        []struct {
			Key     string
			More    int
			Age     time.Duration `json:"age_ns"`
			Callers int
			Leased  bool
			Audit   bool
		}
		Hottest []struct {
			Key   string
			Share float64
		}
	}
	Slowest []struct {
		Cache, Key string
		Took       time.Duration `json:"took_ns"`
		Failed     bool
	}
	Trouble []trouble
}

type trouble struct {
	Cache, What, Why string
	Keys             []string
	Times            int
}

func (p *process) shown() (s shown) {
	p.Helper()
	if err := json.Unmarshal([]byte(p.body("/debug/cacheguard/status.json")), &s); err != nil {
		p.Fatal(err)
	}
	return s
}

func returning(v int) cacheguard.LoadFunc[int] {
	return func(context.Context) (int, error) { return v, nil }
}

var errOrigin = errors.New("no such table: <b>stock</b>")

// What a cache does is shown while it does it.
func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, statuspage.Options{Keys: true})
		if s := p.shown(); len(s.Caches) != 0 || !strings.Contains(p.body("/"), "No cache") {
			t.Errorf("without a cache: %+v", s)
		}
		var sw cacheguard.Switch
		c := open(p, cacheguard.Options[int]{Name: "stock", MaxLoads: 1, Switch: &sw, ErrorTTL: -1})
		other := open(p, cacheguard.Options[int]{Name: "price"})
		get := func(key string, load cacheguard.LoadFunc[int]) {
			_, _ = c.Get(t.Context(), key, load)
		}
		for range 4 {
			get("a", returning(1))
		}
		get("b", func(context.Context) (int, error) { return 0, errOrigin })
		get("c", func(context.Context) (int, error) { return 0, cacheguard.ErrNotFound })
		get("c", returning(1))

		gate := make(chan struct{})
		var calling sync.WaitGroup
		for range 3 {
			calling.Go(func() {
				get("slow", func(context.Context) (int, error) {
					<-gate
					return 1, nil
				})
			})
		}
		synctest.Wait()
		calling.Go(func() { get("queued", returning(1)) })
		time.Sleep(3 * time.Second)
		s := p.shown()
		if len(s.Caches) != 2 || s.Caches[0].Name != "price" || s.Caches[1].Name != "stock" {
			t.Fatalf("caches: %+v", s.Caches)
		}
		one := s.Caches[1]
		if one.Mode != "on" || !one.Listening || one.Instances != 1 || one.LoadsRunning != 1 ||
			one.LoadsQueued != 1 || one.Leases != 1 || one.Callers != 4 {
			t.Errorf("it says %+v", one)
		}
		if a := one.Answers; a["hits"] != 3 || a["negative_hits"] != 1 || a["loaded"] != 2 ||
			a["failed"] != 1 {
			t.Errorf("answers: %v", a)
		}
		if want := 4. / 7; one.HitRatio != want {
			t.Errorf("hit ratio %v, want %v", one.HitRatio, want)
		}
		if l := one.Loads; len(l) != 1 || l[0].Key != `"slow"` || l[0].Callers != 3 ||
			!l[0].Leased || l[0].Age != 3*time.Second {
			t.Errorf("loads: %+v", one.Loads)
		}
		if tr := s.Trouble; len(tr) != 1 || tr[0].Cache != "stock" ||
			!slices.Equal(tr[0].Keys, []string{`"b"`}) || tr[0].What != "load failed" ||
			tr[0].Why != errOrigin.Error() {
			t.Errorf("trouble: %+v", s.Trouble)
		}
		page := p.body("/debug/cacheguard/")
		for _, words := range []string{
			"stock", "price", "57.1 %", "&lt;b&gt;stock", "switch: on", "messages: arrive",
			"load failed", "3s",
		} {
			if !strings.Contains(page, words) {
				t.Errorf("the page doesn't say %q:\n%s", words, page)
			}
		}
		close(gate)
		calling.Wait()
		s = p.shown()
		if len(s.Caches[1].Loads) != 0 || s.Caches[1].Leases != 0 || len(s.Slowest) == 0 ||
			s.Slowest[0].Key != `"slow"` || s.Slowest[0].Took != 3*time.Second {
			t.Errorf("it is over, and the page says %+v", s)
		}
		if err := sw.Set(cacheguard.ModeShadow); err != nil {
			t.Fatal(err)
		}
		if mode := p.shown().Caches[1].Mode; mode != "shadow" {
			t.Errorf("in shadow it says %q", mode)
		}
		_ = other.Close()
		if mode := p.shown().Caches[0].Mode; mode != "closed" {
			t.Errorf("closed, it says %q", mode)
		}
	})
}

// What a closed cache has counted stays in the counts of its name. What it was doing doesn't.
func TestPageCountsClosedCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, statuspage.Options{})
		var origin atomic.Int64
		load := func(context.Context) (int, error) { return int(origin.Load()), nil }
		for round := 1; round <= 3; round++ {
			var sw cacheguard.Switch
			c := open(p, cacheguard.Options[int]{
				Name: "stock", Local: cacheguard.Local[int]{Entries: 10}, Switch: &sw,
			})
			get := func() {
				if _, err := c.Get(t.Context(), "k", load); err != nil {
					t.Error(err)
				}
			}
			if err := c.Invalidate(t.Context(), "k"); err != nil {
				t.Error(err)
			}
			for range 101 { // one load and 100 hits
				get()
			}
			origin.Add(1) // nobody says that the origin has changed
			if err := sw.Set(cacheguard.ModeShadow); err != nil {
				t.Fatal(err)
			}
			get() // is compared, and again a moment later
			time.Sleep(time.Minute)
			for _, instances := range []int{1, 0} {
				one := p.shown().Caches[0]
				if one.Instances != instances || one.LocalEntries != instances ||
					one.Answers["local_hits"] != 100*round || one.Changes != round ||
					one.Compared != round || one.Wrong != round || one.Nines == nil {
					t.Errorf("cache %d, %d are open: %+v", round, instances, one)
				}
				_ = c.Close()
			}
		}
	})
}

// frail is a store that reads fail of while it is told so.
type frail struct {
	cacheguard.Store
	fails atomic.Bool
}

func (s *frail) Get(
	ctx context.Context, k cacheguard.Key, tags []string,
) ([]byte, cacheguard.Generations, error) {
	if s.fails.Load() {
		return nil, nil, errOrigin
	}
	return s.Store.Get(ctx, k, tags)
}

// The page shows the uses of the store that fail, as long as they fail, and the number of changes
// of this process.
func TestPageShowsTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, statuspage.Options{})
		store := &frail{Store: p.store}
		c, err := cacheguard.New(store, cacheguard.Options[int]{
			Name: "stock", Observer: p.page, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		get := func() {
			if _, err := c.Get(t.Context(), "k", returning(1)); err != nil {
				t.Error(err)
			}
		}
		get()
		began := time.Now()
		store.fails.Store(true)
		get()
		s := p.shown()
		if tr := s.Caches[0].Troubles; len(tr) != 1 || tr[0].Use != "reading" ||
			tr[0].Why != errOrigin.Error() || !tr[0].Since.Equal(began) {
			t.Errorf("troubles: %+v", tr)
		}
		if page := p.body("/"); !strings.Contains(page, "store fails for reading: no such table") {
			t.Errorf("the page doesn't say it:\n%s", page)
		}
		store.fails.Store(false)
		get()
		if tr := p.shown().Caches[0].Troubles; len(tr) != 0 {
			t.Errorf("it is over: %+v", tr)
		}
		if page := p.body("/"); !strings.Contains(page, "store: no trouble") {
			t.Errorf("the page doesn't say it:\n%s", page)
		}
		for _, err := range []error{
			c.Invalidate(t.Context(), "a", "b"), c.MarkStale(t.Context(), "a"),
			c.Set(t.Context(), "a", 1), c.InvalidateTags(t.Context(), "x", "y"),
			c.InvalidateAll(t.Context()),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Update(t.Context(), "a", returning(2)); err != nil {
			t.Error(err)
		}
		if n := p.shown().Caches[0].Changes; n != 8 {
			t.Errorf("changes: %d, want 8", n)
		}
	})
}

// A trouble stays until that use of the store succeeds, however long nobody tries. The page says
// when it was last, and doesn't show a trouble of long ago as a present one.
func TestPageShowsHowOldATroubleIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, statuspage.Options{})
		store := &frail{Store: p.store}
		store.fails.Store(true)
		for range 2 { // two caches of one name and with one trouble share a line
			c, err := cacheguard.New(store, cacheguard.Options[int]{
				Name: "stock", Observer: p.page, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range 3 { // the first asks for the lease, without a look-up
				if _, err := c.Get(t.Context(), "k", returning(1)); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
			}
		}
		shows := func(words string, ago time.Duration) {
			t.Helper()
			tr := p.shown().Caches[0].Troubles
			if len(tr) != 1 || tr[0].Last.Sub(tr[0].Since) != 4*time.Second || tr[0].Ago != ago {
				t.Errorf("troubles: %+v; want one of 4s, %v ago", tr, ago)
			}
			if page := p.body("/"); !strings.Contains(page, words) {
				t.Errorf("the page doesn't say %q:\n%s", words, page)
			}
		}
		shows(`<li class="bad">store fails for reading: no such table: &lt;b&gt;stock&lt;/b&gt;, first at 00:00:01 UTC, last at 00:00:05 UTC</li>`,
			time.Second)
		time.Sleep(time.Hour - time.Second)
		shows(`<li class="old">store failed for reading: no such table: &lt;b&gt;stock&lt;/b&gt;, first at 00:00:01 UTC, last at 00:00:05 UTC, 1h0m0s ago; no success since</li>`,
			time.Hour)
	})
}

// unheard is a store whose messages don't arrive, and which knows why.
type unheard struct {
	cacheguard.Store
	since, last time.Time
	err         error
	listening   bool
}

func (s *unheard) Listening() bool { return s.listening }

func (s *unheard) Deafness() (since, last time.Time, err error) { return s.since, s.last, s.err }

// refused is an error of a server, as redisstore has it.
type refused string

func (r refused) Error() string           { return string(r) }
func (r refused) Where() (string, string) { return "redis:6379", "the Redis user lacks a right" }

// If the store knows why messages don't arrive, the page says it. For other stores it says only
// that they don't.
func TestPageShowsWhyMessagesDontArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, statuspage.Options{})
		const text = `redis:6379: the Redis user lacks a right as user "shop" (lacks +subscribe)`
		store := &unheard{
			Store: p.store, since: time.Now(), last: time.Now().Add(9 * time.Second),
			err: fmt.Errorf("secret key: %w", refused(text)),
		}
		for name, s := range map[string]cacheguard.Store{
			"knows": store, "stays silent": struct{ cacheguard.Store }{store},
		} {
			c, err := cacheguard.New(s, cacheguard.Options[int]{
				Name: name, Observer: p.page, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		time.Sleep(10 * time.Second)
		all := p.shown().Caches
		if tr := all[0].Troubles; len(tr) != 1 || tr[0].Use != "messages" ||
			tr[0].Server != "redis:6379" || tr[0].Why != "the Redis user lacks a right" ||
			tr[0].Text != text || tr[0].Last.Sub(tr[0].Since) != 9*time.Second ||
			tr[0].Ago != time.Second {
			t.Errorf("troubles: %+v", tr)
		}
		if len(all[1].Troubles) != 0 || all[1].Listening {
			t.Errorf("of a store that doesn't know why: %+v", all[1])
		}
		if page := p.body("/"); !strings.Contains(page,
			`store fails for messages: redis:6379: the Redis user lacks a right as user &#34;shop&#34; (lacks &#43;subscribe), first at 00:00:00 UTC, last at 00:00:09 UTC`) ||
			!strings.Contains(page, "messages: don&#39;t arrive") &&
				!strings.Contains(page, "messages: don't arrive") ||
			strings.Contains(page, "secret") {
			t.Errorf("the page:\n%s", page)
		}
		store.listening = true // for some seconds the store still has the cause
		if page := p.body("/"); !strings.Contains(page, `store failed for messages: redis:6379`) ||
			!strings.Contains(page, `00:00:09 UTC; messages arrive again</li>`) {
			t.Errorf("the page says that messages arrive, and that they fail:\n%s", page)
		}
		store.err = nil
		if tr := p.shown().Caches[0].Troubles; len(tr) != 0 {
			t.Errorf("it is over: %+v", tr)
		}
	})
}

// The load of an audit is marked as such, and for wrong answers several keys are shown.
func TestPageShowsAudits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, statuspage.Options{Keys: true})
		c := open(p, cacheguard.Options[int]{
			Name: "stock", Jitter: -1, Audit: cacheguard.Audit{PerSecond: 100},
		})
		gate := make(chan struct{})
		var origin atomic.Int64
		load := func(context.Context) (int, error) {
			if origin.Load() > 0 {
				<-gate
			}
			return int(origin.Load()), nil
		}
		get := func(key string) {
			if _, err := c.Get(t.Context(), key, load); err != nil {
				t.Error(err)
			}
		}
		keys := []string{"a", "b", "c", "d", "e", "f", "g"}
		for _, key := range keys {
			get(key)
		}
		origin.Store(1)
		for _, key := range keys { // nobody says that the origin has changed
			time.Sleep(time.Second)
			get(key)
		}
		synctest.Wait()
		if l := p.shown().Caches[0].Loads; len(l) == 0 || !l[0].Audit || l[0].Callers != 0 {
			t.Errorf("loads: %+v", l)
		}
		if page := p.body("/"); !strings.Contains(page, "none: an audit compares") {
			t.Errorf("the page doesn't say it:\n%s", page)
		}
		close(gate)
		for _, key := range keys {
			time.Sleep(2 * time.Second)
			get(key)
		}
		time.Sleep(5 * time.Second)
		s := p.shown()
		i := slices.IndexFunc(s.Trouble, func(one trouble) bool {
			return one.What == "wrong answer"
		})
		if i < 0 || len(s.Trouble[i].Keys) != 5 || s.Trouble[i].Times < len(keys) {
			t.Fatalf("trouble: %+v, compared %d", s.Trouble, s.Caches[0].Compared)
		}
	})
}

// A load of several keys is one line, and without Options.Keys no key is shown.
func TestPageHidesKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, statuspage.Options{})
		c := open(p,
			cacheguard.Options[int]{Name: "stock", Local: cacheguard.Local[int]{Entries: 10}})
		gate := make(chan struct{})
		go func() {
			_, _ = c.GetMany(t.Context(), []string{"secret-1", "secret-2"}, func(
				_ context.Context, keys []string,
			) (map[string]int, error) {
				<-gate
				return nil, errOrigin
			})
		}()
		synctest.Wait()
		if l := p.shown().Caches[0].Loads; len(l) != 1 || l[0].More != 1 || len(l[0].Key) != 16 {
			t.Errorf("loads: %+v", l)
		}
		close(gate)
		synctest.Wait()
		for range 1000 {
			_, _ = c.Get(t.Context(), "secret-3", returning(1))
			time.Sleep(10 * time.Millisecond)
		}
		s := p.shown()
		if hot := s.Caches[0].Hottest; len(hot) != 1 || len(hot[0].Key) != 16 || hot[0].Share != 1 {
			t.Errorf("hottest: %+v", hot)
		}
		for _, path := range []string{"/", "/status.json"} {
			if strings.Contains(p.body(path), "secret") {
				t.Errorf("%s has a key", path)
			}
		}
	})
}

// Callers that are turned away are one problem, however many keys they wanted. The keys are hidden.
func TestPageShowsOverloadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, statuspage.Options{})
		c := open(p, cacheguard.Options[int]{Name: "stock", MaxWaiters: 1})
		gate, refused := make(chan struct{}), 0
		for i := range 30 {
			key := fmt.Sprint("secret-", i)
			for range 2 {
				go func() {
					_, _ = c.Get(t.Context(), key, func(context.Context) (int, error) {
						<-gate
						return 1, nil
					})
				}()
				synctest.Wait()
			}
			_, err := c.Get(t.Context(), key, returning(1))
			if errors.Is(err, cacheguard.ErrOverloaded) {
				refused++
			}
		}
		close(gate)
		synctest.Wait()
		if s := p.shown(); refused != 30 || len(s.Trouble) != 1 || s.Trouble[0].Times < refused {
			t.Errorf("%d calls were refused; trouble: %+v", refused, s.Trouble)
		}
		for _, path := range []string{"/", "/status.json"} {
			if strings.Contains(p.body(path), "secret") {
				t.Errorf("%s has a key", path)
			}
		}
	})
}

// A load that stops because the cache has cancelled it is no trouble, and has not failed.
func TestPageAndCancelledLoads(t *testing.T) {
	for _, ending := range []string{"close", "leave"} {
		t.Run(ending, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProcess(t, statuspage.Options{})
				c := open(p, cacheguard.Options[int]{Name: "stock"})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				go func() {
					_, _ = c.Get(ctx, "k", func(ctx context.Context) (int, error) {
						<-ctx.Done()
						return 0, ctx.Err()
					})
				}()
				synctest.Wait() // until it loads
				time.Sleep(10 * time.Second)
				if ending == "leave" {
					leave()
					synctest.Wait()
				}
				_ = c.Close()
				s := p.shown()
				if len(s.Trouble) > 0 || len(s.Slowest) != 1 || s.Slowest[0].Failed {
					t.Errorf("trouble: %+v, slowest: %+v", s.Trouble, s.Slowest)
				}
			})
		})
	}
}

// Names and errors are text, whatever is in them.
func TestPageIsText(t *testing.T) {
	p := newProcess(t, statuspage.Options{Keys: true})
	evil := `"><script>alert(1)</script><x y="`
	c := open(p, cacheguard.Options[int]{Name: evil})
	_, _ = c.Get(t.Context(), evil, func(context.Context) (int, error) {
		return 0, errors.New(evil)
	})
	if page := p.body("/"); strings.Contains(page, "<script>alert") ||
		!strings.Contains(page, "&lt;script&gt;") {
		t.Error(page)
	}
}

// The page and its files are served under any path and only for reading requests. Nothing else is
// served.
func TestPageIsServed(t *testing.T) {
	p := newProcess(t, statuspage.Options{})
	for _, test := range []struct {
		method, path string
		status       int
		kind         string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8"},
		{"GET", "/debug/cacheguard/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/debug/cacheguard/", 200, "text/html; charset=utf-8"},
		{"GET", "/debug/cacheguard/status.json", 200, "application/json"},
		{"GET", "/debug/cacheguard/page.css", 200, "text/css; charset=utf-8"},
		{"GET", "/debug/cacheguard/page.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/debug/cacheguard", 301, ""},
		{"GET", "/debug/cacheguard/page.html", 301, ""},
		{"POST", "/debug/cacheguard/", 405, ""},
		{"DELETE", "/debug/cacheguard/status.json", 405, ""},
	} {
		resp := p.asked(test.method, test.path)
		if resp.StatusCode != test.status ||
			test.kind != "" && resp.Header.Get("Content-Type") != test.kind {
			t.Errorf("%s %s: %s, %v", test.method, test.path, resp.Status, resp.Header)
		}
		csp := resp.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") ||
			resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: %v", test.method, test.path, resp.Header)
		}
	}
}

// A path without a slash at its end is redirected to the same path with a slash, wherever the page
// is mounted. No path leads to another host.
func TestPageRedirects(t *testing.T) {
	p := newProcess(t, statuspage.Options{})
	mux := http.NewServeMux()
	mux.Handle("/debug/", http.StripPrefix("/debug", p.page))
	for path, want := range map[string]string{
		"/debug/cacheguard":             "/debug/cacheguard/",
		"/debug/cacheguard?keys=1":      "/debug/cacheguard/",
		"/debug/a/b":                    "/debug/a/b/",
		"/debug/https:evil.example":     "/debug/https:evil.example/",
		"/debug/javascript:alert(1)":    "/debug/javascript:alert%281%29/",
		`/debug/\evil.example`:          "/debug/%5Cevil.example/",
		"/debug/%5Cevil.example":        "/debug/%5Cevil.example/",
		"/debug/%2F%5Cevil.example":     "/debug/%5Cevil.example/",
		"/debug/a%3Fb%23c":              "/debug/a%3Fb%23c/",
		"/debug/a%0D%0ASet-Cookie: b=c": "/debug/a%0D%0ASet-Cookie:%20b=c/",
	} {
		for mounted, handler := range map[string]http.Handler{
			"at the root": p.page, "under StripPrefix": mux,
		} {
			asked, err := url.Parse("http://shop.example" + path)
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, &http.Request{Method: "GET", URL: asked, Host: asked.Host})
			location := w.Header().Get("Location")
			to, err := asked.Parse(location)
			if err != nil || w.Code != http.StatusMovedPermanently {
				t.Fatalf("%s: %d to %q, %v", path, w.Code, location, err)
			}
			// Browsers read a backslash as a slash, which Parse doesn't.
			if to.String() != "http://shop.example"+want || strings.Contains(location, `\`) {
				t.Errorf("%s, %s: redirected to %q, which is %v", path, mounted, location, to)
			}
		}
	}
}

// However many caches, keys and errors there are, the page is bounded, and so is what it remembers.
func TestPageIsBounded(t *testing.T) {
	p := newProcess(t, statuspage.Options{Keys: true})
	c := open(p, cacheguard.Options[int]{
		Name: "stock", ErrorTTL: -1, Local: cacheguard.Local[int]{Entries: 10},
	})
	for i := range 2000 {
		_, _ = c.Get(t.Context(), fmt.Sprint(i), func(context.Context) (int, error) {
			return 0, fmt.Errorf("%d %s", i, strings.Repeat("x", 10_000))
		})
	}
	s := p.shown()
	if len(s.Slowest) > 12 || len(s.Trouble) > 24 || len(s.Caches[0].Hottest) > 8 {
		t.Errorf("%d slow, %d troubles, %d hot", len(s.Slowest), len(s.Trouble),
			len(s.Caches[0].Hottest))
	}
	if n := len(p.body("/")); n > 50_000 {
		t.Errorf("the page has %d bytes", n)
	}
}
