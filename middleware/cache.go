package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Cache is a shared HTTP cache in front of handlers. It is safe for concurrent use. Caches with the
// same [Options.Name], in one process or in several, share their stored responses, so they must be
// in front of the same handlers.
type Cache struct {
	opts  Options
	rules *rules
	keys  keyer
	shape *shaper
	loads *cacheguard.Cache[*response]
	turns *turns // slots of handlers that the loader doesn't run

	changes   budget // limits invalidations by unsafe requests
	purges    purges
	variants  variants
	varies    varies
	backlog   backlog
	lastTries lastTries
	parts     partial
	posts     atomic.Int32 // how many responses to POST are being recorded
	tagsSaid  atomic.Bool  // the log already says that a response has too many tags
}

// New makes a cache on a store that other caches and other processes may share. If options are
// invalid, New returns all errors, joined. New doesn't connect to the store. Close the cache before
// the store.
func New(store cacheguard.Store, opts Options) (*Cache, error) {
	opts, err := opts.withDefaults()
	shape, shapeErr := newShaper(opts)
	c := &Cache{
		opts: opts, rules: newRules(opts), keys: newKeyer(opts), shape: shape,
		turns: newTurns(opts),
	}
	c.backlog.most, c.backlog.told = int64(opts.MaxBacklog), c.cuts
	loads, coreErr := cacheguard.New(store, cacheguard.Options[*response]{
		Name:         opts.Name,
		NegativeTTL:  -1,
		ErrorTTL:     -1, // after a panic the handler runs again, as without a cache
		Backoff:      failedPause,
		StrongReads:  opts.StrongReads,
		LeaseTTL:     opts.LeaseTTL,
		LoadTimeout:  opts.LoadTimeout,
		MaxLoads:     opts.MaxLoads,
		Limiter:      opts.Limiter,
		OnStoreDown:  opts.OnStoreDown,
		MaxValueSize: opts.MaxBody + maxHead,
		Local:        localTier(opts),
		Codec:        codec{maxBody: opts.MaxBody},
		ErrorText:    errorText,
		Switch:       opts.Switch,
		Same:         sameToClients,
		Observer:     opts.Observer,
		Logger:       opts.Logger,
	})
	if err := errors.Join(err, shapeErr, coreErr); err != nil {
		return nil, err
	}
	c.loads = loads
	return c, nil
}

// failedPause is how long all processes wait after a handler has failed to renew a stale response,
// before one of them runs the handler again. Each further failure in a row makes the pause longer
// by half, up to three times failedPause. The pause protects a failing origin. But a handler may
// also fail because of what one client sends, and then the pause keeps the old version for
// everybody. The cache can't tell clients apart, because an attacker gets new addresses, cookies
// and fields for nothing. The next try must come soon, because each try is a lottery in which
// honest requests win according to their share of all requests. A longer pause would protect a
// failing origin better, but each lost try would cost more time.
const failedPause = 500 * time.Millisecond

// mostKeyShown is how many bytes of a key Cache-Status shows.
const mostKeyShown = 1 << 10

// maxHead is how many bytes a response may need in the store in addition to its body.
const maxHead = 1 << 20

func localTier(opts Options) (l cacheguard.Local[*response]) {
	if opts.LocalBytes > 0 && !opts.StrongReads {
		l.Entries, l.TTL = opts.LocalBytes, opts.LocalTTL
		l.Weigh = func(_ string, res *response) uint32 { return uint32(res.weight()) }
	}
	return l
}

// Shutdown waits until the handlers that run in the background have finished and stored their
// responses, but not longer than ctx. Then it closes the cache. Handlers of requests that are still
// open continue in any case.
func (c *Cache) Shutdown(ctx context.Context) error { return c.loads.Shutdown(ctx) }

// Close ends the handlers that run in the background. Requests that arrive later go to the handler
// as if there were no cache.
func (c *Cache) Close() error { return c.loads.Close() }

// Handler returns next with the cache in front of it, for chi's With and Use or around any
// [http.Handler].
//
// Some middlewares add fields of their own to each response (a request id, CORS). Put them in front
// of the cache, because header fields that are set before next is called are never stored. A
// middleware that sets a cookie must add it when the header is written: a response that has
// Set-Cookie before next is called isn't shared. Put middlewares whose output depends on the client
// behind the cache. For example, with r.With(c.Handler, compress) the compressed response is
// stored. These middlewares must name the request field in Vary every time. chi's Compress doesn't
// do this: see "Order of middlewares" in docs/middleware.md.
func (c *Cache) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isRead(r.Method) {
			c.serve(w, r, next)
			return
		}
		inside := c.inside(r)
		// If inside is r, Pattern needs no copying. Setting it would be a race, because a run that
		// outlives the request may still read r.
		if inside != r {
			// A mux behind the cache sets Pattern, and layers in front read it.
			defer func() { r.Pattern = inside.Pattern }()
		}
		c.serve(w, inside, next)
	})
}

// inside returns the request that the cache uses and the handler gets: changed by the shaper,
// without the cookies of Options.IgnoreCookies, and with the request's tokens in its context. The
// cookies are removed last, so that Options.Shape can't add them again.
func (c *Cache) inside(r *http.Request) *http.Request {
	inside := withoutCookies(c.shape.request(r), c.opts.IgnoreCookies)
	if ctx := c.withToken(inside.Context(), r); ctx != inside.Context() {
		return inside.WithContext(ctx)
	}
	return inside
}

func (c *Cache) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	switch c.route(r) {
	case toCache:
		c.read(w, r, next)
	case toHandler:
		s := cacheStatus{fwd: "bypass"}
		if isRead(r.Method) {
			s.reason = cacheguard.ReasonBypass
		}
		c.pass(w, r, next, s)
	case toChange:
		c.change(w, r, next)
	default:
		c.untouched(w, r, next)
	}
}

// route is the way that a request takes through the cache.
type route uint8

const (
	toCache   route = iota // the request may be answered from the cache
	toHandler              // the handler answers it, for this client alone
	toChange               // like toHandler, and the request may change stored responses
	untouched              // like toHandler, and the connection may stop being HTTP
)

func (c *Cache) route(r *http.Request) route {
	h := r.Header
	switch {
	case !isRead(r.Method):
		if isSafe(r.Method) {
			return toHandler
		}
		return toChange
	case h["Upgrade"] != nil:
		return untouched
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		// The response could depend on the body, which is not in the key.
		return toHandler
	case h["If-Match"] != nil || h["If-Unmodified-Since"] != nil:
		// Only an origin server evaluates these (RFC 9111, section 4.3.2).
		return toHandler
	case secondHost(r): // with HTTP/2, net/http leaves the Host field in the header
		return toHandler
	case namesFields(h):
		// A proxy behind the cache removes these fields, but a layer in front has read them.
		return toHandler
	case !c.keys.ok(r):
		return toHandler
	}
	return toCache
}

// namesFields reports whether Connection names fields that are meant for the next hop alone (RFC
// 9110, section 7.6.1). A proxy behind the cache, such as httputil.ReverseProxy, removes these
// fields from the request, even if a layer in front of the cache has set them. So a client can
// choose which fields the backend sees, and the response is for this client alone. The cache can't
// remove the fields itself instead, because layers in front of it have already read sessions and
// languages from them. namesFields ignores options of the connection itself, and fields that a
// proxy removes in any case.
func namesFields(h http.Header) bool {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = trimOWS(name); name != "" &&
				!slices.ContainsFunc(ofConnection, func(known string) bool {
					return strings.EqualFold(known, name)
				}) {
				return true
			}
		}
	}
	return false
}

// secondHost reports whether a request has a Host field that differs from Request.Host (RFC 9113,
// section 8.3.1). A handler can read both.
func secondHost(r *http.Request) bool {
	lines := r.Header["Host"]
	return len(lines) > 1 || len(lines) == 1 && lines[0] != r.Host
}

var ofConnection = []string{
	"close", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}

func isRead(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// isSafe reports whether a method is registered as safe. An unknown method must be treated as
// unsafe (RFC 9111, section 4.4).
func isSafe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "PROPFIND", "QUERY",
		"REPORT", "SEARCH":
		return true
	}
	return false
}

// maxLevels is how many stored responses of a resource a request looks at. Each of them may have a
// Vary that leads to another one.
const maxLevels = 4

// read answers a GET or HEAD from the process-local tier, or else from the store, or else with the
// handler's response to this request or to an earlier one.
func (c *Cache) read(w http.ResponseWriter, r *http.Request, next http.Handler) {
	key := c.keys.key(r)
	asked := readAsked(r.Header)
	if c.opts.IgnoreRequestDirectives {
		asked = asked.firm()
	}
	asked.token = c.loads.Demanded(r.Context())
	if c.opts.LocalBytes > 0 && c.local(w, r, key, asked) {
		return
	}
	x := &exchange{
		cache: c, w: w, r: r, next: next, key: key, base: key, asked: asked, came: time.Now(),
	}
	if identified(r, nil) {
		x.base = identifiedKey(key)
	}
	if r.Method == http.MethodHead || r.Header["Range"] != nil || asked.onlyIfCached ||
		asked.noStore {
		x.look()
		return
	}
	x.run()
}

// local answers from the process-local tier if the tier has a response that the request accepts.
func (c *Cache) local(w http.ResponseWriter, r *http.Request, key string, asked asked) bool {
	return c.localFrom(key, w, r, key, asked) ||
		identified(r, nil) && c.localFrom(identifiedKey(key), w, r, key, asked)
}

func (c *Cache) localFrom(
	base string, w http.ResponseWriter, r *http.Request, key string, asked asked,
) bool {
	level := base
	for range maxLevels {
		found, ok := c.loads.Local(level)
		if !ok {
			if level != base {
				return false
			}
			if level = c.varies.level(base, r.Header); level == "" {
				return false
			}
			continue
		}
		res := found.Value
		if res.answers(key, r.Header) {
			if !res.suits(r) {
				return false
			}
			age := res.age + found.Age
			if !asked.takes(age, found.FreshFor, res.mustRevalidate) ||
				!found.NotOlderThan(asked.token) {
				return false
			}
			c.send(w, r, res, age, c.hitStatus(found, key))
			return true
		}
		if level = nextLevel(res, key, base, level, r); level == "" {
			return false
		}
	}
	return false
}

// nextLevel returns the key of the variant for this request. The key contains the request's values
// of the fields by which the stored response res varies. nextLevel returns "" if res leads to no
// other key.
func nextLevel(res *response, key, base, level string, r *http.Request) string {
	if res == nil || res.key != key || len(res.vary) == 0 {
		return ""
	}
	next := variantKey(base, res.vary, selectedBy(res.vary, r.Header))
	if next == level {
		return ""
	}
	return next
}

// hitStatus returns the Cache-Status of a stored response.
func (c *Cache) hitStatus(found cacheguard.Result[*response], key string) string {
	if c.opts.HideStatus {
		return ""
	}
	return c.status(cacheStatus{hit: true, ttl: found.FreshFor, hasTTL: true}, key)
}

func (c *Cache) status(s cacheStatus, key string) string {
	if c.opts.HideStatus {
		return ""
	}
	if c.opts.ShowKey {
		s.key = key[:min(len(key), mostKeyShown)]
	}
	return s.line(c.opts.CacheStatus)
}

// statusOf returns the status for a request that can't be answered because of err.
func statusOf(err error) int {
	var there *cacheguard.LoadError
	var failed *statusError
	switch {
	case errors.As(err, &failed):
		return failed.status
	case errors.Is(err, errIncomplete), errors.Is(err, http.ErrAbortHandler):
		return http.StatusBadGateway
	case errors.Is(err, cacheguard.ErrOverloaded), errors.Is(err, cacheguard.ErrUnavailable),
		errors.Is(err, cacheguard.ErrClosed):
		return http.StatusServiceUnavailable // also if the error wraps a time-out
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	case errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	case errors.As(err, &there):
		var status int
		if n, _ := fmt.Sscanf(there.Text, "%d ", &status); n == 1 && status >= 500 &&
			status <= 599 {
			return status
		}
	}
	return http.StatusInternalServerError
}

// errorText returns the text that other processes get about a handler that failed: the status for
// the requests that wait and, if these requests should not try again, lastWord. The text doesn't
// have the value of a panic, because this value could contain a secret.
func errorText(err error) string {
	text := fmt.Sprintf("%d %s", statusOf(err), http.StatusText(statusOf(err)))
	if isLast(err) {
		text += lastWord
	}
	return text
}

// retryAfter is the Retry-After of responses with status 503.
const retryAfter = time.Second
