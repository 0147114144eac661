package middleware_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// personal are responses that only their own client may get. The cache learns this only from the
// handler.
var personal = map[string]struct {
	answer func(h http.Header, user string)
	asks   []string // fields of each request
}{
	"private":                   {answer: cacheControl("private, max-age=60")},
	"private without freshness": {answer: cacheControl("private")},
	"no-store":                  {answer: cacheControl("no-store")},
	"no-store among others":     {answer: cacheControl("public, max-age=60, no-store")},
	"nothing said":              {answer: func(http.Header, string) {}},
	"Vary star": {answer: func(h http.Header, _ string) {
		h.Set("Cache-Control", "max-age=60")
		h.Set("Vary", "*")
	}},
	"Set-Cookie, public as well": {answer: withCookie("public, s-maxage=60")},
	"Set-Cookie":                 {answer: withCookie("max-age=60")},
	"Authorization": {
		answer: cacheControl("max-age=60"), asks: []string{"Authorization", "Bearer of "},
	},
}

func cacheControl(value string) func(http.Header, string) {
	return func(h http.Header, _ string) { h.Set("Cache-Control", value) }
}

func withCookie(value string) func(http.Header, string) {
	return func(h http.Header, user string) {
		h.Set("Cache-Control", value)
		h.Add("Set-Cookie", "session="+user)
	}
}

// account is a request of a user for the user's own account.
func account(user string, asks []string) call {
	header := []string{"X-User", user}
	if len(asks) > 0 {
		header = append(header, asks[0], asks[1]+user)
	}
	return get("/account", header...)
}

// wantOwn fails the test unless the response is this user's own.
func (r received) wantOwn(tb testing.TB, user string) {
	tb.Helper()
	r.want(tb, 200, "account of "+user)
	if cookies := r.header["Set-Cookie"]; len(cookies) > 0 &&
		!slices.Equal(cookies, []string{"session=" + user}) {
		tb.Errorf("user %s gets the cookies %q", user, cookies)
	}
}

// Eight users on two replicas send a request at the same moment. They wait for one handler, whose
// response turns out to be for one of them only. No user gets another user's response. The other
// users don't queue: their handlers all run at the same time. In later rounds all eight handlers
// run at the same time.
func TestFleetUnshared(t *testing.T) {
	const users = 8
	for _, name := range slices.Sorted(maps.Keys(personal)) {
		kind := personal[name]
		t.Run(name, func(t *testing.T) {
			onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
				first, others, second := f.gate(), f.gate(), f.gate()
				cookies := name == "Set-Cookie" || name == "Set-Cookie, public as well"
				f.route("/account", func(w http.ResponseWriter, r *http.Request) {
					switch run, _, _ := f.counts(); {
					case run == 1:
						first.pass()
					case run <= users:
						others.pass()
					default:
						second.pass()
					}
					user := r.Header.Get("X-User")
					kind.answer(w.Header(), user)
					fmt.Fprint(w, "account of "+user)
				})
				ask := func(round string) []*client {
					return f.startAll(users, func(i int) call {
						return account(round+strconv.Itoa(i), kind.asks)
					})
				}
				check := func(round string, clients []*client) {
					for i, cl := range clients {
						got := cl.reply(t)
						got.wantOwn(t, round+strconv.Itoa(i))
						if (got.header.Get("Set-Cookie") != "") != cookies {
							t.Errorf("cookies %q", got.header["Set-Cookie"])
						}
					}
				}

				clients := ask("first")
				f.awaitWaiting(users)
				f.wantRuns(1, "before it is known that the response can't be shared")
				first.open()
				f.awaitRunning(users - 1) // two handler times in all
				others.open()
				check("first", clients)
				f.wantRuns(users, "the first round")

				clients = ask("second")
				f.awaitRunning(users) // one handler time
				second.open()
				check("second", clients)
				f.wantRuns(2*users, "both rounds")
			})
		})
	}
}

// As soon as the header of a response says that it is for its own client, the requests that wait
// run the handler themselves. They need not wait for the end of the response.
func TestFleetUnsharedIsSaidByTheHeader(t *testing.T) {
	onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
		decided, ended := f.gate(), f.gate()
		f.route("/account", func(w http.ResponseWriter, r *http.Request) {
			user := r.Header.Get("X-User")
			w.Header().Set("Cache-Control", "private")
			if user == "leader" {
				decided.pass()
				w.WriteHeader(200)
				ended.pass()
			}
			fmt.Fprint(w, "account of "+user)
		})
		leader := f.start(0, account("leader", nil))
		f.awaitRunning(1)
		clients := f.startAll(6, func(i int) call { return account(strconv.Itoa(i), nil) })
		f.awaitWaiting(7)
		decided.open()
		for i, cl := range clients {
			cl.reply(t).wantOwn(t, strconv.Itoa(i))
		}
		ended.open()
		leader.reply(t).wantOwn(t, "leader")
		f.wantRuns(7, "seven users")
	})
}

// The cache remembers that a resource can't be shared until the first response that can be shared.
func TestFleetHitForMissEnds(t *testing.T) {
	onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
		public, all := false, f.gate()
		f.route("/page", func(w http.ResponseWriter, r *http.Request) {
			if !public {
				all.pass()
				w.Header().Set("Cache-Control", "private")
				fmt.Fprint(w, "for "+r.Header.Get("X-User"))
				return
			}
			page(w, "for everybody")
		})
		all.open()
		f.do(0, get("/page", "X-User", "0")).want(t, 200, "for 0")
		all = f.gate()
		clients := f.startAll(4, func(i int) call {
			return get("/page", "X-User", strconv.Itoa(i))
		})
		f.awaitRunning(4)
		all.open()
		for i, cl := range clients {
			cl.reply(t).want(t, 200, "for "+strconv.Itoa(i))
		}

		public = true
		f.fresh()
		f.do(1, get("/page")).want(t, 200, "for everybody")
		for i := range 4 {
			f.do(i%2, get("/page")).want(t, 200, "for everybody")
		}
		f.wantRuns(1, "five requests since it can be shared")
	})
}

// A response without freshness is for its own client only. DefaultTTL changes this, but not for a
// response that says private.
func TestFleetDefaultTTL(t *testing.T) {
	onEachStore(t, 2, middleware.Options{DefaultTTL: time.Minute}, func(t *testing.T, f *fleet) {
		f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "all categories")
		})
		f.route("/account", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "private")
			fmt.Fprint(w, "account of "+r.Header.Get("X-User"))
		})
		for i := range 4 {
			f.do(i%2, get("/catalog")).want(t, 200, "all categories")
		}
		f.wantRuns(1, "four requests for what says nothing about its freshness")
		for i := range 4 {
			f.do(i%2, account(strconv.Itoa(i), nil)).wantOwn(t, strconv.Itoa(i))
		}
		f.wantRuns(5, "and four for private pages")
	})
}

// Groups of users never see each other's responses, also if they send requests at the same moment.
func TestFleetVaryBy(t *testing.T) {
	opts := middleware.Options{VaryBy: func(r *http.Request) string {
		return r.Header.Get("X-Group")
	}}
	onEachStore(t, 2, opts, func(t *testing.T, f *fleet) {
		groups := []string{"", "red", "blue", "a&b=c#d"}
		all := f.gate()
		f.route("/prices", func(w http.ResponseWriter, r *http.Request) {
			all.pass()
			page(w, fmt.Sprintf("prices for %q", r.Header.Get("X-Group")))
		})
		of := func(i int) string { return groups[i/2%len(groups)] }
		clients := f.startAll(16, func(i int) call { return get("/prices", "X-Group", of(i)) })
		f.awaitRunning(len(groups))
		f.awaitWaiting(16)
		all.open()
		for i, cl := range clients {
			cl.reply(t).want(t, 200, fmt.Sprintf("prices for %q", of(i)))
		}
		f.wantRuns(len(groups), "16 users of four groups")
		for i := range 16 {
			f.do(i%2, get("/prices", "X-Group", of(i))).want(t, 200,
				fmt.Sprintf("prices for %q", of(i)))
		}
		f.wantRuns(len(groups), "and again")
	})
}

// If a response turns out to vary, the clients that wait for it get their own variants, and each
// variant is made once.
func TestFleetVariants(t *testing.T) {
	for field, values := range map[string][]string{
		"Accept-Language": {"de", "fr", "", "en"},
		"Cookie":          {"group=red", "group=blue", "", "group=red; theme=dark"},
	} {
		t.Run(field, func(t *testing.T) {
			onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
				hold := f.gate()
				f.route("/list", func(w http.ResponseWriter, r *http.Request) {
					hold.pass()
					w.Header().Set("Vary", field)
					page(w, "the list for "+r.Header.Get(field))
				})
				ask := func(i int) call {
					if value := values[i/2%len(values)]; value != "" {
						return get("/list", field, value)
					}
					return get("/list")
				}
				clients := f.startAll(32, ask)
				f.awaitWaiting(32)
				kinds := 1
				// Requests that say who asks wait for each other, and so do all other requests.
				if field == "Cookie" {
					kinds = 2
				}
				f.awaitRunning(kinds)
				f.wantRuns(kinds, "before it is known that the response varies")
				hold.open()
				for i, cl := range clients {
					cl.reply(t).want(t, 200, "the list for "+values[i/2%len(values)])
				}
				f.wantRuns(len(values), "32 clients of four kinds")
				for i := range 16 {
					f.do(i%2, ask(i)).want(t, 200, "the list for "+values[i/2%len(values)])
				}
				f.wantRuns(len(values), "and 16 more")
			})
		})
	}
}
