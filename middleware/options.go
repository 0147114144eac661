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
	"github.com/cacheguard/cacheguard/internal/option"
)

// Options configures a [Cache]. The zero value of a field means its default. A negative value turns
// a feature or a limit off if the field's comment says so; for other fields it is an error.
//
// Without DefaultTTL, NegativeTTL and Heuristic, a response that has none of Cache-Control, Expires
// and TargetedFields is neither shared nor stored.
type Options struct {
	// Name is part of every key in the store. Caches in front of the same handlers must have the
	// same Name. If a request passes through two caches, in one process or in several, their names
	// must differ. Otherwise the inner cache waits for the outer one. Default "http".
	Name string

	// DefaultTTL is how long a response is fresh if it has no lifetime of its own (max-age,
	// s-maxage, Expires). By setting DefaultTTL you say that these routes send every client the
	// same answer, unless a response says otherwise. DefaultTTL applies to the statuses that RFC
	// 9110, section 15.1, calls heuristically cacheable.
	//
	// DefaultTTL doesn't apply to requests with Cookie or Authorization, except as said below. The
	// response to a request with Cookie is shared only if it has a lifetime of its own, public, or
	// Vary: Cookie. With Authorization a lifetime isn't enough: the response also needs public,
	// s-maxage or must-revalidate. A TLS client certificate and Proxy-Authorization are treated
	// like Authorization, but no other field is. If X-Api-Key or a field that a proxy sets
	// identifies the user, the response must say private or name the field in Vary, or VaryBy must
	// return the field's value.
	//
	// Default 0. With zero or a negative value DefaultTTL gives no response a lifetime.
	DefaultTTL time.Duration

	// NegativeTTL replaces DefaultTTL for the statuses 404, 405, 410, 414 and 501. Default:
	// DefaultTTL, but at most 30 seconds. Negative: responses with these statuses are stored only
	// if they have their own lifetime, or one by Heuristic.
	NegativeTTL time.Duration

	// Heuristic gives a lifetime to a response with Last-Modified that has no lifetime of its own
	// (RFC 9111, section 4.2.2). The lifetime is this fraction of the time since Last-Modified. It
	// is at most a day, and at most 30 seconds for 404, 405, 410, 414 and 501. Heuristic is used
	// before DefaultTTL. Heuristic applies to the same statuses as DefaultTTL. It doesn't apply to
	// requests with Cookie or Authorization, with the same exceptions. The RFC suggests 0.1.
	// Default 0, which turns it off; at most 1.
	Heuristic float64

	// StaleWhileRevalidate and StaleIfError are the stale windows of responses that don't have the
	// directive of the same name (RFC 5861). They don't apply to a response with must-revalidate,
	// proxy-revalidate, no-cache or s-maxage, to a 5xx, or to a response that is already stale when
	// it arrives. After a handler has failed, all processes serve the stale response for about half
	// a second without running the handler again. After several failures in a row this pause is up
	// to about 1.5 seconds. Default 0. Zero or negative means no stale window.
	StaleWhileRevalidate, StaleIfError time.Duration

	// Keep is how long a response with a validator (ETag, Last-Modified) stays stored after its
	// freshness and its stale windows have ended. During this time the handler can answer 304
	// instead of making the response again. Default 1 hour. Negative: responses aren't kept longer.
	Keep time.Duration

	// HitForMiss is how long all processes remember that a resource's responses can't be shared.
	// During this time requests for the resource run the handler in parallel. The first response
	// that can be shared ends this time. Default 120 seconds; at least 1 ms.
	HitForMiss time.Duration

	// WaitTimeout is how long a request waits for the handler of another request. After that it
	// runs the handler itself, and its response isn't stored. Default 10 seconds. Negative: only
	// LoadTimeout limits the wait, and after LoadTimeout the request gets a 504.
	WaitTimeout time.Duration

	// With StrongReads, if a purge or an unsafe request has returned in any process, requests that
	// arrive later in any process get no response from before this change. This doesn't hold in a
	// Redis cluster until the message about the change arrives, nor while Redis is unavailable: see
	// "What is not promised" in package cacheguard. StrongReads sometimes costs an additional
	// look-up, and can't be combined with LocalBytes. Default: off. Without StrongReads another
	// process learns of a purge when the message arrives, usually within a fraction of a
	// millisecond.
	StrongReads bool

	// LoadTimeout is the longest time that other requests wait for one run of the handler. It is
	// also the longest time that a run in the background may take. If the client whose request
	// started the handler is still connected, the handler continues after LoadTimeout as it would
	// without a cache. Default 30 seconds.
	LoadTimeout time.Duration

	// LeaseTTL is how long other processes can't run the handler for a resource after the process
	// that ran it has died. Default 3 seconds; at least 10 ms.
	LeaseTTL time.Duration

	// MaxLoads is how many handlers run at a time in this process for requests that may be answered
	// from the cache. Up to 64 times MaxLoads further requests wait for a slot, each for
	// LoadTimeout at most. GET and HEAD requests that can't be answered from the cache (Upgrade,
	// If-Match, a body, no-store, a Range that is not stored) have additional slots and a queue of
	// their own. The additional slots are a quarter of MaxLoads, but at least one.
	//
	// A run occupies its slot until the handler returns. There are two exceptions. First, if a
	// response is streamed to its own client alone, the slot is free as soon as the first bytes are
	// sent. This applies to a WebSocket, an event stream, and a response that the handler flushes
	// and no other client gets.
	//
	// Second, a handler may wait for its own client in Write or while it reads a body. If these
	// waits take more than 25 ms altogether, the handler gives up its slot while it waits. Before
	// it continues, it takes one of the additional slots. If none gets free within a second, the
	// handler may continue without a slot, but only one handler per second may do so. Default
	// 1,024. A negative value means no limit.
	MaxLoads int

	// Limiter replaces MaxLoads by a limit that several caches share. Requests that can't be
	// answered from the cache still have slots of their own in each cache, a quarter of the default
	// of MaxLoads.
	Limiter *cacheguard.Limiter

	// OnStoreDown decides what happens when the store can't be used. With [cacheguard.FailOpen],
	// the default, the handler runs, once for all equal requests of this process that come at the
	// same time. With [cacheguard.FailClosed] requests get a 503.
	OnStoreDown cacheguard.StorePolicy

	// MaxBody is the size in bytes of the largest body that is stored. A larger body is sent to its
	// client but isn't stored. Default 4 MiB.
	MaxBody int

	// MaxBacklog limits how many bytes this process keeps in memory for clients that read slowly.
	// It counts the body of a stored response that is being sent. It also counts what a handler has
	// written, if the handler has returned or waits for its client. Bodies and writes of at most 64
	// KiB are not counted. A body that several clients read is counted once. Hits of one resource
	// that send equal bodies are also counted once. Above the limit, the cache drops bodies and
	// closes the connections of their clients. If the bodies of which no client has taken 64 KiB
	// yet fill more than half of the limit, the cache drops the oldest of them. Otherwise, of the
	// other bodies, it drops the one whose clients have read nothing for the longest time. A layer
	// in front must let http.ResponseController set write deadlines, for example by an Unwrap
	// method of its writer. Otherwise the cache can't close connections, and bodies that it drops
	// stay in memory. Default 32 times MaxBody; at least MaxBody. A negative value means no limit.
	MaxBacklog int

	// RecordFlushed lets the cache store two further kinds of responses although they are flushed
	// before their end: those that are fresh only by DefaultTTL or Heuristic and don't say public,
	// and those that are stored only to be validated. An event stream is never stored. Other
	// requests get a response of the first kind when it is complete. Set RecordFlushed for handlers
	// that always flush, such as [net/http/httputil.ReverseProxy], which flushes after each piece
	// of a response without Content-Length. Default: off. Then the cache stops recording such a
	// response when the handler writes after a flush, or still runs 50 ms after its first flush.
	RecordFlushed bool

	// LocalBytes is the approximate number of bytes that the process-local tier may use for
	// responses. Default 0, which means no process-local tier.
	LocalBytes int

	// LocalTTL is how long the process-local tier serves a response before the store is read again.
	// Default 1 minute.
	LocalTTL time.Duration

	// VaryBy returns a string that becomes part of the key, such as the group of the user. Requests
	// for which VaryBy returns different strings never share a response. VaryBy must not read the
	// body. Default: none.
	VaryBy func(*http.Request) string

	// IgnoreCookies are the names of cookies that have no meaning for these routes, such as those
	// for consent and analytics. A name that ends in * matches all names that begin with the rest
	// ("_ga*"). These cookies are removed from GET and HEAD requests before the handler sees them.
	// A request that has no other cookie is treated as one without Cookie. Default: none.
	IgnoreCookies []string

	// TokenField and TokenCookie name a request field and a cookie in which a client can send a
	// token (see [cacheguard.Committed]). A request with a token never gets a response whose
	// handler had started before the token was made. This holds in any process, even if the message
	// about the change hasn't arrived there yet. So a client sees its own changes.
	//
	// If the stored response may be older than the token, all requests that need a newer response
	// at that time wait for one more run of the handler. Requests without a token are answered as
	// before. Anybody can invent a token. The cache ignores a token with a time in the future. A
	// token that is later than the stored response costs about as much as Cache-Control: no-cache.
	//
	// The handler's context carries the token, so other caches that the handler reads with this
	// context obey the token, too. The context of the request may already carry a token (see
	// [cacheguard.NotOlderThan]), and the request may bring several tokens, of which the first four
	// are used. Of all these tokens, the latest that isn't in the future counts. Two kinds of
	// response may still contain older data. One is a response whose handler ran without the token
	// and read from other caches. The other is a response whose validators are too coarse to show
	// the change: a request without the token may have freshened it by a HEAD, a 304 or a part.
	//
	// The cache treats TokenCookie as one of IgnoreCookies. Default: none.
	TokenField, TokenCookie string

	// MaxVariants limits how many responses of one URL a process stores, one for each value of the
	// fields that Vary names. A response counts until its stale windows have ended. A response
	// above the limit is shared with the requests that wait for it, but isn't stored. If it is
	// requested again, it replaces one of the counted responses, at most once a second. The
	// replaced response stays stored as long as without the limit, but isn't counted any more. A
	// process keeps counts for the last 4,096 URLs that vary. After 4,096 other URLs, the count of
	// a URL starts again at zero. Requests that identify their user (Cookie, Authorization) and all
	// other requests have one count together.
	//
	// MaxVariants protects against clients that send very many different values of a Vary field. It
	// doesn't limit the store's memory: set Redis' maxmemory for that. Default 128. A negative
	// value means no limit.
	MaxVariants int

	// IgnoreVary names fields that a layer in front of the cache adds to Vary although the pages
	// don't depend on them, such as "Origin" for CORS. If a handler behind the cache names such a
	// field in Vary, the field is not ignored. Default: none.
	IgnoreVary []string

	// TrustForwarded names the header fields in which a proxy in front of this server says which
	// host and scheme the client asked for: "X-Forwarded-Host", "X-Forwarded-Proto". Name a field
	// only if the proxy sets it on every request, because a client that can send the field chooses
	// the key under which a response is stored. Default: none; the key is made of the request as
	// received.
	TrustForwarded []string

	// InvalidateLocations extends the effect of a successful unsafe request: it also invalidates
	// the URLs that its response names in Location and Content-Location, if they are on the same
	// origin. So if a client can choose where a form redirects to, the client can purge any page.
	// Default: off.
	InvalidateLocations bool

	// StorePosts lets the response to a POST be stored for GET requests for the same URL if the
	// response says so: its status is 200, its Content-Location is that URL, and it has a lifetime
	// of its own (RFC 9110, section 9.3.3). Anybody can send a POST, and every client then gets the
	// response to that POST's body. So if a handler repeats the request body in its response, it
	// must not set this Content-Location. The cache stores the response with
	// [cacheguard.Cache.SetEntry]: if another request changes the resource at the same time, the
	// older of the two responses may stay stored for its lifetime. The response to a request that
	// identifies its user (Cookie, Authorization) isn't stored. Neither is the response to a
	// request that Hosts, IgnoreQuery, KeepQuery, Normalize or Shape would change for a GET,
	// because the handler of a POST gets the request as it came. Default: off.
	StorePosts bool

	// Hosts maps a host to the main host of the same site. The cache and the handler treat a
	// request for a host in the map as a request for its main host. The handler finds the main host
	// in Request.Host, and in X-Forwarded-Host if that field is trusted and has one value. If the
	// method is neither GET nor HEAD, the handler gets the request as it came. Then Hosts,
	// IgnoreQuery, KeepQuery, Normalize and Shape only help to find the responses that the request
	// makes out of date. Names are compared without regard to case and to the default ports of http
	// and https. By default requests for two spellings of one host share nothing, because a handler
	// may write a redirect to either of them.
	Hosts map[string]string

	// IgnoreQuery names query fields that pages don't depend on, such as "utm_*" (a star at the end
	// stands for the rest of a name). KeepQuery names the only query fields that pages depend on;
	// if it is empty but not nil, pages depend on none. Fields that pages don't depend on are
	// removed from the request, so the handler doesn't see them either. IgnoreQuery and KeepQuery
	// can't be combined. Default: every field is part of the key and stays in the request.
	IgnoreQuery, KeepQuery []string

	// Normalize names request fields that are lists. Requests whose lists are equal then share
	// responses that vary by the field, even if the lists are written differently. The cache joins
	// the lines of the field and removes whitespace around commas. In Accept, Accept-Encoding and
	// Accept-Language repetitions, case and the order of equal weights make no difference either.
	// The handler sees the normalized field. Default: requests share only responses that were made
	// for the same lines in the same order and spelling.
	Normalize []string

	// Shape changes a copy of the request before the cache and the handler see it. It runs after
	// Hosts, IgnoreQuery, KeepQuery and Normalize have been applied. The key and the comparison by
	// Vary use the Host, URL and Header that Shape leaves in the request. Shape must not block.
	// [Cache.Purge] doesn't call Shape, so pass the URLs that Shape makes to Purge. The values that
	// a router in front of the cache has taken from the path stay in the key unchanged. Default:
	// none.
	Shape func(r *http.Request)

	// IgnoreRequestDirectives makes the cache ignore Cache-Control and Pragma of requests, except
	// only-if-cached and no-store. Then no client can force a run of the handler by asking for a
	// newer response. Default: off.
	IgnoreRequestDirectives bool

	// TargetedFields names the fields of RFC 9213 that this cache obeys instead of Cache-Control.
	// It obeys the first of them that a response has and that can be read. Default
	// "CDN-Cache-Control". If the slice is empty but not nil, there are no targeted fields.
	TargetedFields []string

	// CacheStatus is this cache's name in the Cache-Status field (RFC 9211), a token. Default
	// "cacheguard".
	CacheStatus string

	// HideStatus leaves Cache-Status out of responses.
	HideStatus bool

	// ShowKey adds the key to Cache-Status.
	ShowKey bool

	// Error answers two kinds of requests: those that waited for a handler that failed, and those
	// that could not be served (status 503). If the handler failed twice, status is the 5xx that it
	// answered without a lifetime, 500 after a panic, and 502 if its response was not whole or it
	// panicked with [http.ErrAbortHandler]. If it took longer than LoadTimeout, there is no second
	// try, and status is 504. err is the cause, such as an error of [cacheguard.Cache.GetEntry].
	// Default: [http.Error] with the text of the status.
	Error func(w http.ResponseWriter, r *http.Request, status int, err error)

	// Switch sets the cache to on, off or shadow while the program runs. Several caches can have
	// the same Switch: see [cacheguard.Switch]. While the Switch is off or in shadow, the handler
	// answers every request. Requests of one process for the same resource at the same time share
	// one run of the handler. Default: none; the cache is always on.
	Switch *cacheguard.Switch

	// Observer receives the events of look-ups and loads. A request may cause several look-ups,
	// such as one for each variant. Some hits are not observed: those of HEAD, of requests for a
	// part, and of requests that identify their user and get the response stored for all. To count
	// requests, count the values of Cache-Status. Default: none.
	Observer cacheguard.Observer

	// Logger gets a line when a problem needs an operator, and another line when the problem is
	// over. Default slog.Default().
	Logger *slog.Logger
}

const (
	defaultName        = "http"
	defaultKeep        = time.Hour
	defaultHitForMiss  = 120 * time.Second
	defaultWait        = 10 * time.Second
	defaultMaxBody     = 4 << 20
	defaultMaxLoads    = 1024
	backlogShare       = 32 // the default of MaxBacklog is this many times MaxBody
	defaultVariants    = 128
	defaultLoadTimeout = 30 * time.Second // the core's
	defaultLocalTTL    = time.Minute      // the core's
	mostNegativeTTL    = 30 * time.Second
	mostTTL            = 10 * 365 * 24 * time.Hour // the core's
)

// withDefaults returns the options with their defaults set, except those that package cacheguard
// sets. If options are invalid it returns all errors, joined.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("middleware: Options."+format, args...))
	}
	if o.Name == "" {
		o.Name = defaultName
	}
	duration := func(name string, d *time.Duration, def, least time.Duration) {
		if *d < 0 {
			*d = -1
			return
		}
		name = "middleware: Options." + name
		errs = append(errs, option.AtMost(name, *d, mostTTL), option.Duration(name, d, def, least))
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
	if !(o.Heuristic >= 0 && o.Heuristic <= 1) { // NaN is invalid, too
		wrong("Heuristic is %v, it must be from 0 to 1", o.Heuristic)
	}
	switch {
	case o.MaxBody == 0:
		o.MaxBody = defaultMaxBody
	case o.MaxBody < 0:
		wrong("MaxBody is %d, it can't be negative", o.MaxBody)
		o.MaxBody = defaultMaxBody // so that the checks below can report further errors
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
			wrong("TrustForwarded has %q, it can have %s and %s", name, forwardedHost,
				forwardedProto)
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
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' &&
			c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
