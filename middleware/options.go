package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Options configures a Cache. The zero value of a field means its default; negative means off where
// off makes sense.
//
// With neither DefaultTTL nor Cache-Control (or Expires) in a handler's response nothing of it is
// shared or stored.
type Options struct {
	// Name is part of every key in the store. Caches in front of the same handlers have the same;
	// caches in series, in one process or in several, must not, or the inner one waits for the
	// outer one. Default "http".
	Name string

	// DefaultTTL is how long a response is fresh that says nothing about it itself (no max-age,
	// s-maxage, Expires). It means: what these routes answer is the same for everybody, unless a
	// response says otherwise. It never holds for requests with Cookie or Authorization: what they
	// get is shared only if the response says so, by a lifetime of its own (with Authorization:
	// public, s-maxage or must-revalidate as well), by public, or by Vary: Cookie. A TLS client
	// certificate and Proxy-Authorization count as Authorization does. No other field does: where
	// X-Api-Key or a field of a proxy says who asks, the response must say private or name it in
	// Vary, or VaryBy must return it. It holds for the statuses that RFC 9110, section 15.1, calls
	// heuristically cacheable. Default 0 or negative: such a response is not shared.
	DefaultTTL time.Duration

	// NegativeTTL takes DefaultTTL's place for 404, 405, 410, 414 and 501. Default: DefaultTTL, but
	// 30 seconds at most; negative: they are not stored without a freshness of their own.
	NegativeTTL time.Duration

	// Heuristic is the share of the time since Last-Modified for which a response is fresh that has
	// no other freshness (RFC 9111, section 4.2.2), for a day at most: for 404, 405, 410, 414 and
	// 501, 30 seconds at most. It comes before DefaultTTL. Like that it never holds for requests
	// with Cookie or Authorization, and it holds for the same statuses. The RFC suggests 0.1.
	// Default 0: off; at most 1.
	Heuristic float64

	// StaleWhileRevalidate and StaleIfError are those of responses that don't have the directive of
	// that name (RFC 5861). must-revalidate, proxy-revalidate, no-cache and s-maxage rule them out.
	// After a handler has failed, the fleet serves the stale response without asking it for half a
	// second, after several failures in a row for up to 1.5 s. Default 0 or negative: none.
	StaleWhileRevalidate, StaleIfError time.Duration

	// Keep is how long a response with a validator (ETag, Last-Modified) stays after it is no
	// longer fresh, so that the handler can answer 304 instead of making it again. Default 1 hour;
	// negative: not at all.
	Keep time.Duration

	// HitForMiss is how long the fleet remembers that a resource's responses can't be shared:
	// meanwhile its requests run the handler in parallel, and the first response that can be shared
	// ends it. Default 120 seconds; at least 1 ms.
	HitForMiss time.Duration

	// WaitTimeout is how long a request waits for another one's handler before it runs the handler
	// itself, without storing what comes of it. Default 10 seconds; negative: as long as its client
	// waits.
	WaitTimeout time.Duration

	// StrongReads has every request answered with what is at least as new as the purges and the
	// unsafe requests that had returned, in any process, when it came, for one more look-up at
	// times (see cacheguard.Options). It excludes LocalBytes. Default: off; then another process
	// may take a fraction of a millisecond to hear of a purge.
	StrongReads bool

	// LoadTimeout is the longest that others wait for one run of the handler, and that a run in the
	// background may take. A handler whose own client is there goes on after it, as if there were
	// no cache. Default 30 seconds.
	LoadTimeout time.Duration

	// LeaseTTL is how long a process that dies can hold a resource. Default 3 seconds; at least 10
	// ms.
	LeaseTTL time.Duration

	// MaxLoads is how many handlers run at a time in this process for requests that may be answered
	// from the cache; up to 64 times as many more wait for their turn, for LoadTimeout at most.
	// Beside them a quarter as many, one at least, run for GET and HEAD requests that can't be
	// answered from the cache (Upgrade, If-Match, a body, no-store, a Range of what is not stored),
	// with a queue of their own.
	//
	// A run counts until its handler returns. What is sent while the handler runs counts by its
	// start: WebSockets, event streams, and what the handler flushes and nobody else gets. A
	// handler that has waited for its own client for more than 25 ms altogether, in Write or in
	// reading a body, isn't counted while it waits, and takes a place among the quarter before it
	// goes on. If it gets none for a second it may go on without: one handler a second. Default
	// 1,024; negative: no limit.
	MaxLoads int

	// Limiter takes MaxLoads' place: one budget for several caches. Requests that can't be answered
	// from the cache still have the quarter of MaxLoads' default, for each cache.
	Limiter *cacheguard.Limiter

	// OnStoreDown says what happens when the store can't be used: FailOpen (default) runs the
	// handler, coalesced in this process; FailClosed answers 503.
	OnStoreDown cacheguard.StorePolicy

	// MaxBody is the size in bytes above which a body goes to its client but is not stored. Default
	// 4 MiB.
	MaxBody int

	// MaxBacklog is how many bytes this process keeps for clients that read slowly. It counts
	// bodies above 64 KiB: those of responses whose handlers have returned, what a handler hands
	// over in one Write and waits with, and what is stored. A body that several clients read counts
	// once, and so do equal hits. Above the limit, the body of which nobody has read anything for
	// longest is given up: the connections of its clients are cut. Default 32 times MaxBody; at
	// least MaxBody; negative: no limit.
	MaxBacklog int

	// RecordFlushed has responses recorded on that are flushed before their end and have no
	// lifetime of their own (DefaultTTL, Heuristic), event streams aside: others get them when they
	// are whole. It is for handlers that flush as a matter of course, such as
	// httputil.ReverseProxy, which does it after each piece of a response without Content-Length.
	// Default: what is written after a flush, or a handler that still runs 50 ms after one, ends
	// the recording.
	RecordFlushed bool

	// LocalBytes is how much memory the process-local tier may use for responses, about. Default 0:
	// there is no tier.
	LocalBytes int

	// LocalTTL is how long the process-local tier answers until the store is asked again. Default 1
	// minute.
	LocalTTL time.Duration

	// VaryBy is a secondary key, such as the group of the user: requests with different ones never
	// share a response. It must not read the body. Default: none.
	VaryBy func(*http.Request) string

	// IgnoreCookies are the names of cookies that have no meaning for these routes: consent,
	// analytics. A name that ends in * stands for all that begin so ("_ga*"). They are taken out of
	// GET and HEAD requests before a handler sees them, and a request with no other cookie counts
	// as one without Cookie. Default: none.
	IgnoreCookies []string

	// TokenField and TokenCookie name a field and a cookie by which requests can bring a token
	// (cacheguard.Committed). Such a request is answered with nothing whose handler had begun when
	// the token was made, in any process, whether or not the invalidation has arrived: so a client
	// that has made a change reads its own write. Where what is stored may be older, the request
	// takes part in one more run of the handler, together with all others that demand it, and waits
	// for that, while requests without a token are answered as ever. Anybody can make a token up:
	// one from a moment that has not come is ignored, another one costs what Cache-Control:
	// no-cache would. The handler's context has the token, so caches that the handler reads go by
	// it, too; a context that already has one (cacheguard.NotOlderThan) counts as well, and of
	// several tokens the latest. A response that a handler has made of what other caches had,
	// without the token, may be of older things; so may the body of one that a request without the
	// token has freshened, by a HEAD, a 304 or a part, where its validators are too coarse for the
	// change. The cookie is one of IgnoreCookies. Default: none.
	TokenField, TokenCookie string

	// MaxVariants is how many fresh responses of one URL a process has stored, one for each value
	// of the fields that Vary names. What comes beyond it is shared with those who wait, and not
	// stored: clients choose the values. One that is asked for again takes another one's place,
	// once a second: what was there stays stored until it is stale, but isn't counted. Nor is it
	// when 4,096 other URLs that vary have been asked for since. Requests that say who asks have
	// copies of their own, as many. The bound is against floods; the memory of the store is Redis'
	// maxmemory. Default 128; negative: no limit.
	MaxVariants int

	// IgnoreVary are fields that pages don't depend on although somebody in front of the cache adds
	// them to Vary, such as "Origin" for CORS. They count all the same when a handler behind the
	// cache names them. Default: none.
	IgnoreVary []string

	// TrustForwarded has the header fields that say what the client asked for when a proxy in front
	// of this server changes it: "X-Forwarded-Host", "X-Forwarded-Proto". Name one only if that
	// proxy sets it on every request: whoever can send it chooses under which key a response is
	// stored. Default: none; the key is made of the request as received.
	TrustForwarded []string

	// InvalidateLocations has an unsafe request that succeeds invalidate not only its own URL, but
	// also those that its response names in Location and Content-Location on the same origin.
	// Whoever can choose where a form redirects to can then purge any page. Default: off.
	InvalidateLocations bool

	// StorePosts has a response to POST stored for GET requests for the same URL if it says so: its
	// status is 200, its Content-Location is that URL, and it has a lifetime of its own (RFC 9110,
	// section 9.3.3). What a body made of it, which anybody can send, is then what all get, so a
	// handler that echoes bodies must not answer in this way. It is stored like by
	// cacheguard.Cache.Set: if another request changes the resource at the same time, the older of
	// the two responses may stay for its lifetime. Requests that say who asks are excepted.
	// Default: off.
	StorePosts bool

	// Hosts are hosts that are one site: a request for the first of two is taken for one of the
	// second, by the cache and by the handler, which finds it in Request.Host (and in
	// X-Forwarded-Host, where that is trusted). Names are compared without regard to case and to
	// the ports of http and https. By default requests for two spellings of one host share nothing,
	// for a handler can write a redirect to either.
	Hosts map[string]string

	// IgnoreQuery are fields of the query that pages don't depend on, such as "utm_*" (a star at
	// the end stands for the rest of a name), KeepQuery are the only ones that they depend on (not
	// nil and empty: none). The others are taken out of the request, also for the handler. The two
	// exclude each other. Default: every field is in the key and is left there.
	IgnoreQuery, KeepQuery []string

	// Normalize are request fields that are lists, of which requests with equal lists share what
	// varies by them, however they write them: lines are joined, whitespace around commas goes, and
	// in Accept, Accept-Encoding and Accept-Language repetitions, case and the order of equal
	// weights, too. The handler sees the field so. Default: requests share only what was made for
	// the same lines in the same order and spelling.
	Normalize []string

	// Shape changes a copy of the request before the cache and the handler see it, after what the
	// four options above do: what it makes of Host, URL and Header is what the key and Vary are
	// compared by. It must not block, and Purge doesn't call it: give that URLs as Shape makes
	// them. What a router in front has taken from the path stays in the key as it was. Default:
	// none.
	Shape func(r *http.Request)

	// IgnoreRequestDirectives has requests' Cache-Control and Pragma ignored, but for
	// only-if-cached and no-store: then no client can have the handler run by asking for something
	// newer.
	IgnoreRequestDirectives bool

	// TargetedFields are the fields of RFC 9213 that take the place of Cache-Control for this
	// cache, the first one present counts. Default "CDN-Cache-Control"; an empty, not nil slice:
	// none.
	TargetedFields []string

	// CacheStatus is this cache's name in the Cache-Status field (RFC 9211), a token. Default
	// "cacheguard".
	CacheStatus string

	// HideStatus leaves Cache-Status out.
	HideStatus bool

	// ShowKey has Cache-Status tell the key.
	ShowKey bool

	// Error answers a request that has waited for a handler which failed twice (with the status of
	// its response, if that was a 5xx without freshness; 500 if it panicked; 502 when the response
	// was not whole; 504 when it took longer than LoadTimeout), and one that could not be served
	// (503). err is what cacheguard.Cache.GetEntry returned.
	Error func(w http.ResponseWriter, r *http.Request, status int, err error)

	// Switch takes the cache out of the path of requests while the program runs, and may be that of
	// several caches: see cacheguard.Switch. While it is off or in shadow the handler answers, once
	// for those who ask for the same at the same time. Default: none; the cache is always on.
	Switch *cacheguard.Switch

	// Observer is told of hits, loads and everything else. Default none.
	Observer cacheguard.Observer

	// Logger gets a line when something needs an operator, and when it is over. Default
	// slog.Default().
	Logger *slog.Logger
}

const (
	defaultName        = "http"
	defaultKeep        = time.Hour
	defaultHitForMiss  = 120 * time.Second
	defaultWait        = 10 * time.Second
	defaultMaxBody     = 4 << 20
	defaultMaxLoads    = 1024
	backlogShare       = 32 // bodies of MaxBody
	defaultVariants    = 128
	defaultLoadTimeout = 30 * time.Second // the core's
	defaultLocalTTL    = time.Minute      // the core's
	mostNegativeTTL    = 30 * time.Second
	mostTTL            = 10 * 365 * 24 * time.Hour // the core's
)

// withDefaults returns the options with every default in place that is not the core's, or
// everything that is wrong with them.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("middleware: Options."+format, args...))
	}
	if o.Name == "" {
		o.Name = defaultName
	}
	duration := func(name string, d *time.Duration, def, least time.Duration) {
		switch {
		case *d == 0:
			*d = def
		case *d < 0:
			*d = -1
		case *d < least:
			wrong("%s is %v, below the least of %v", name, *d, least)
		case *d > mostTTL:
			wrong("%s is %v, above the most of %v", name, *d, mostTTL)
		}
	}
	duration("DefaultTTL", &o.DefaultTTL, -1, time.Millisecond)
	duration("NegativeTTL", &o.NegativeTTL, min(o.DefaultTTL, mostNegativeTTL), time.Millisecond)
	duration("StaleWhileRevalidate", &o.StaleWhileRevalidate, -1, time.Millisecond)
	duration("StaleIfError", &o.StaleIfError, -1, time.Millisecond)
	duration("Keep", &o.Keep, defaultKeep, time.Millisecond)
	duration("WaitTimeout", &o.WaitTimeout, defaultWait, time.Millisecond)
	if o.HitForMiss < 0 {
		wrong("HitForMiss is %v, it can't be negative", o.HitForMiss)
	}
	duration("HitForMiss", &o.HitForMiss, defaultHitForMiss, time.Millisecond)
	if !(o.Heuristic >= 0 && o.Heuristic <= 1) { // also not a number
		wrong("Heuristic is %v, it must be from 0 to 1", o.Heuristic)
	}
	switch {
	case o.MaxBody == 0:
		o.MaxBody = defaultMaxBody
	case o.MaxBody < 0:
		wrong("MaxBody is %d, it can't be negative", o.MaxBody)
		o.MaxBody = defaultMaxBody // what else is wrong is told, too
	}
	switch {
	case o.MaxBacklog == 0:
		o.MaxBacklog = backlogShare * min(o.MaxBody, math.MaxInt/backlogShare)
	case o.MaxBacklog > 0 && o.MaxBacklog < o.MaxBody:
		wrong("MaxBacklog is %d, below MaxBody, which is %d", o.MaxBacklog, o.MaxBody)
	}
	if o.LocalBytes < 0 {
		wrong("LocalBytes is %d, it can't be negative", o.LocalBytes)
	}
	if o.LocalTTL != 0 && o.LocalBytes == 0 {
		wrong("LocalBytes is required for a local tier")
	}
	if o.LocalBytes > 0 && o.LocalTTL == 0 {
		o.LocalTTL = defaultLocalTTL
	}
	if o.StrongReads && o.LocalBytes > 0 {
		wrong("StrongReads and Options.LocalBytes exclude each other")
	}
	for _, name := range o.IgnoreCookies {
		if !isToken(name) || name == "*" {
			wrong("IgnoreCookies has %q, which can't be the name of a cookie", name)
		}
	}
	if o.TokenField != "" && !isToken(o.TokenField) {
		wrong("TokenField is %q, which is no field", o.TokenField)
	}
	if o.TokenCookie != "" {
		if !isToken(o.TokenCookie) || strings.Contains(o.TokenCookie, "*") {
			wrong("TokenCookie is %q, which can't be the name of a cookie", o.TokenCookie)
		}
		o.IgnoreCookies = append(slices.Clip(o.IgnoreCookies), o.TokenCookie)
	}
	for _, name := range o.TrustForwarded {
		switch http.CanonicalHeaderKey(name) {
		case forwardedHost, forwardedProto:
		default:
			wrong("TrustForwarded has %q, it can have %s and %s", name, forwardedHost, forwardedProto)
		}
	}
	if o.TargetedFields == nil {
		o.TargetedFields = []string{"CDN-Cache-Control"}
	}
	for _, name := range o.TargetedFields {
		if !isToken(name) || strings.EqualFold(name, "Cache-Control") {
			wrong("TargetedFields has %q, which can't be a targeted field", name)
		}
	}
	if o.CacheStatus == "" {
		o.CacheStatus = "cacheguard"
	} else if !isToken(o.CacheStatus) {
		wrong("CacheStatus is %q, which is no token", o.CacheStatus)
	}
	if o.MaxLoads == 0 && o.Limiter == nil {
		o.MaxLoads = defaultMaxLoads
	}
	if o.MaxVariants == 0 {
		o.MaxVariants = defaultVariants
	}
	for _, name := range o.IgnoreVary {
		if !isToken(name) || name == "*" {
			wrong("IgnoreVary has %q, which is no field", name)
		}
	}
	if o.Switch == nil {
		o.Switch = new(cacheguard.Switch)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errors.Join(errs...)
}

const (
	forwardedHost  = "X-Forwarded-Host"
	forwardedProto = "X-Forwarded-Proto"
)

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
