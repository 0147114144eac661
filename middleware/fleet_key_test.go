package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cacheguard/cacheguard/middleware"
)

// Two requests for different resources never get the same response, on any replica.
func TestFleetResources(t *testing.T) {
	for name, pair := range map[string][2]call{
		"query":             {get("/list?page=1"), get("/list?page=2")},
		"query or none":     {get("/list"), get("/list?page=1")},
		"empty query":       {get("/list"), get("/list?")},
		"order of a query":  {get("/list?a=1&b=2"), get("/list?b=2&a=1")},
		"repeated in query": {get("/list?a=1"), get("/list?a=1&a=2")},
		"semicolons":        {get("/list?a=1;b=2"), get("/list?a=1&b=2")},
		"path":              {get("/list/a"), get("/list/b")},
		"trailing slash":    {get("/list"), get("/list/")},
		"case of the path":  {get("/list/a"), get("/list/A")},
		"escaped slash":     {get("/list/a%2Fb"), get("/list/a/b")},
		"escaped question":  {get("/list%3Fpage=1"), get("/list?page=1")},
		"host": {
			call{path: "/list", host: "a.example"}, call{path: "/list", host: "b.example"},
		},
		"case of the host": {
			call{path: "/list", host: "a.example"}, call{path: "/list", host: "A.example"},
		},
		"own port": {
			call{path: "/list", host: "a.example"}, call{path: "/list", host: "a.example:80"},
		},
		"port": {
			call{path: "/list", host: "a.example:81"}, call{path: "/list", host: "a.example:82"},
		},
		"host and path": {
			call{path: "/b/list", host: "a.example"}, call{path: "/list", host: "a.example"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := memoryFleet(t, 2, middleware.Options{})
			f.route("/*", func(w http.ResponseWriter, r *http.Request) {
				page(w, r.Host+" "+r.RequestURI)
			})
			for round := range 2 {
				for i, c := range pair {
					host := c.host
					if host == "" {
						host = "shop.example"
					}
					f.do((round+i)%2, c).want(t, 200, host+" "+c.path)
				}
			}
			f.wantRuns(2, "two resources, twice each")
		})
	}
}

// One resource has one response, whatever other fields a request has.
func TestFleetOneResource(t *testing.T) {
	for name, other := range map[string]call{
		"a field nobody asks of": get("/list", "X-Anything", "yes"),
		"User-Agent":             get("/list", "User-Agent", "other"),
		"Cookie":                 get("/list", "Cookie", "session=1"),
		"X-Forwarded-Host":       get("/list", "X-Forwarded-Host", "evil.example"),
		"X-Forwarded-Proto":      get("/list", "X-Forwarded-Proto", "https"),
		"Forwarded":              get("/list", "Forwarded", "host=evil.example;proto=https"),
		"X-Original-URL":         get("/list", "X-Original-URL", "/admin"),
		"X-HTTP-Method-Override": get("/list", "X-HTTP-Method-Override", "POST"),
	} {
		t.Run(name, func(t *testing.T) {
			f := memoryFleet(t, 2, middleware.Options{})
			f.route("/*", func(w http.ResponseWriter, r *http.Request) { page(w, "the list") })
			f.do(0, get("/list")).want(t, 200, "the list")
			f.do(1, other).want(t, 200, "the list")
			f.wantRuns(1, "one resource")
		})
	}
}

// A field that a proxy sets is part of the key only if it is named in TrustForwarded.
func TestFleetTrustForwarded(t *testing.T) {
	f := memoryFleet(t, 2,
		middleware.Options{TrustForwarded: []string{"X-Forwarded-Host", "X-Forwarded-Proto"}})
	f.route("/list", func(w http.ResponseWriter, r *http.Request) {
		page(w, r.Header.Get("X-Forwarded-Proto")+" "+r.Header.Get("X-Forwarded-Host"))
	})
	for round := range 2 {
		for i, sent := range [][2]string{
			{"http", "a.example"}, {"https", "a.example"}, {"https", "b.example"},
		} {
			f.do((i+round)%2,
				get("/list", "X-Forwarded-Proto", sent[0], "X-Forwarded-Host", sent[1])).want(t,
				200, sent[0]+" "+sent[1])
		}
	}
	f.wantRuns(3, "three origins, twice each")
}

// http and https are two resources.
func TestFleetScheme(t *testing.T) {
	f := memoryFleet(t, 2, middleware.Options{})
	f.route("/list", func(w http.ResponseWriter, r *http.Request) {
		page(w, fmt.Sprintf("TLS: %v", r.TLS != nil))
	})
	secure := httptest.NewTLSServer(f.replicas[1].router)
	defer secure.Close()
	overTLS := func() (string, error) {
		r, err := http.NewRequest("GET", secure.URL+"/list", nil)
		if err != nil {
			return "", err
		}
		r.Host = "shop.example"
		response, err := secure.Client().Do(r)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		return readAll(t, response.Body), nil
	}
	for range 2 {
		f.do(0, get("/list")).want(t, 200, "TLS: false")
		if got, err := overTLS(); err != nil || got != "TLS: true" {
			t.Errorf("over TLS %q, %v", got, err)
		}
	}
	f.wantRuns(2, "two schemes, twice each")
}

// A HEAD is answered from the stored response to a GET. A response to a HEAD is never given to a
// GET.
func TestFleetHead(t *testing.T) {
	onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
		catalog := strings.Repeat("category ", 100)
		f.route("/*", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Method", r.Method)
			w.Header().Set("Content-Length", fmt.Sprint(len(catalog)))
			page(w, catalog)
		})
		head := call{method: "HEAD", path: "/first"}
		for i := range 2 {
			got := f.do(i, head)
			got.want(t, 200, "")
			if got.header.Get("Content-Length") != fmt.Sprint(len(catalog)) {
				t.Errorf("a HEAD to the handler says %v", got.header)
			}
		}
		f.do(1, get("/first")).want(t, 200, catalog)
		f.fresh()
		for i := range 2 {
			got := f.do(i, head)
			got.want(t, 200, "")
			if got.header.Get("Content-Length") != fmt.Sprint(len(catalog)) ||
				got.header.Get("X-Method") != "GET" {
				t.Errorf("a HEAD of a stored response says %v", got.header)
			}
			f.do(i, get("/first")).want(t, 200, catalog)
		}
		f.wantRuns(0, "the response of a GET is stored")
	})
}

// A HEAD and a GET that come at the same moment both get the right response.
func TestFleetHeadAndGetTogether(t *testing.T) {
	onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
		hold := f.gate()
		var gets atomic.Int64
		f.route("/list", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "GET" {
				gets.Add(1)
			}
			hold.pass()
			page(w, "the list")
		})
		head := call{method: "HEAD", path: "/list"}
		for _, first := range []call{head, get("/list")} {
			hold = f.gate()
			f.fresh()
			if err := f.replicas[0].cache.Purge(t.Context(),
				"http://shop.example/list"); err != nil {
				t.Fatal(err)
			}
			clients := []*client{f.start(0, first)}
			f.awaitRunning(1)
			for i := range 4 {
				clients = append(clients,
					f.start(i%2, []call{get("/list"), head, head, get("/list")}[i]))
			}
			f.await("all have arrived", func() bool {
				for _, cl := range clients {
					if !cl.arrived() {
						return false
					}
				}
				return true
			})
			hold.open()
			for i, cl := range clients {
				want := ""
				if i == 0 && first.method == "" || i == 1 || i == 4 {
					want = "the list"
				}
				cl.reply(t).want(t, 200, want)
			}
			if n := gets.Swap(0); n != 1 {
				t.Errorf("first %q: the handler has run for %d GET requests", first.method, n)
			}
		}
	})
}
