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

// Cache is a shared HTTP cache in front of handlers. It is safe for concurrent use. Several caches
// of one process, or of a fleet, that have one Name share what they store, so they have to be in
// front of the same handlers.
type Cache struct {
	opts  Options
	rules *rules
	keys  keyer
	shape *shaper
	loads *cacheguard.Cache[*response]
	turns *turns // of what the loader doesn't run

	changes   budget // of strangers
	purges    purges
	variants  variants
	varies    varies
	backlog   backlog
	lastTries lastTries
	parts     partial
	posts     atomic.Int32 // responses to POST that are recorded
	tagsSaid  atomic.Bool  // that a response has too many
}

// New makes a cache on a store that other caches and other processes share. It reports every
// invalid option at once, joined, and never dials. Close the cache before the store.
func New(store cacheguard.Store, opts Options) (*Cache, error) {
	opts, err := opts.withDefaults()
	shape, shapeErr := newShaper(opts)
	c := &Cache{opts: opts, rules: newRules(opts), keys: newKeyer(opts), shape: shape, turns: newTurns(opts)}
	c.backlog.most, c.backlog.told = int64(opts.MaxBacklog), c.cuts
	loads, coreErr := cacheguard.New(store, cacheguard.Options[*response]{
		Name:         opts.Name,
		NegativeTTL:  -1,
		ErrorTTL:     -1, // a handler that panics is asked again, as without a cache
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

// failedPause is for how long a fleet leaves the handler of a stale response alone that has failed,
// and half as long again after each more failure in a row, up to three times as long. It protects a
// failing origin, but a handler may also fail by what one client sends, and then the pause keeps
// everybody on the old version. Clients can't be told apart (addresses, cookies and fields cost
// nothing), so what counts is how soon the next request has its try: each try is a lot in which
// honest requests win by their share. A longer pause would make the tries of a failing origin as
// much rarer as it makes each lot dearer.
const failedPause = 500 * time.Millisecond

// mostKeyShown is how much of a key Cache-Status tells.
const mostKeyShown = 1 << 10

// maxHead is how much more than its body a response may take in the store.
const maxHead = 1 << 20

func localTier(opts Options) (l cacheguard.Local[*response]) {
	if opts.LocalBytes > 0 && !opts.StrongReads {
		l.Entries, l.TTL = opts.LocalBytes, opts.LocalTTL
		l.Weigh = func(_ string, res *response) uint32 { return uint32(res.weight()) }
	}
	return l
}

// Shutdown lets handlers that run in the background finish and store until ctx ends, and closes the
// cache. Handlers of requests that are still open go on either way.
func (c *Cache) Shutdown(ctx context.Context) error { return c.loads.Shutdown(ctx) }

// Close ends what runs in the background. Requests that come later go to the handler as if there
// were no cache.
func (c *Cache) Close() error { return c.loads.Close() }

// Handler returns next with the cache in front of it, for chi's With and Use or around any
// http.Handler. It has to be inside of what adds something of its own to each response (a request
// id, CORS, a session cookie), for what is in the header before next sees it is never stored, and
// outside of what depends on the client: r.With(c.Handler, compress), so that what is stored is
// compressed. Vary has to say so each time, which chi's Compress does not: see the package
// documentation.
func (c *Cache) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isRead(r.Method) {
			c.serve(w, r, next)
			return
		}
		inside := c.inside(r)
		if inside != r { // else what goes on behind the request may still read it
			defer func() { r.Pattern = inside.Pattern }() // of a mux inside, for whoever is outside
		}
		c.serve(w, inside, next)
	})
}

// inside is a request as the cache takes it and as the handler gets it: shaped, and without the
// cookies that count for nothing. Those go last, so that Options.Shape can't bring one back.
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

// route says which way a request goes.
type route uint8

const (
	toCache   route = iota // it may be answered from the cache
	toHandler              // the handler answers it, and what it says concerns nobody else
	toChange               // the same, and it may change what is stored
	untouched              // the same, and the connection will be no HTTP any more
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
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0: // a body that is not in the key could decide about the response
		return toHandler
	case h["If-Match"] != nil || h["If-Unmodified-Since"] != nil: // a cache must not answer these (RFC 9110, section 13.2.1)
		return toHandler
	case secondHost(r): // net/http leaves that of HTTP/2 in the header
		return toHandler
	case namesFields(h): // a proxy behind the cache removes them, a layer in front has read them
		return toHandler
	case !c.keys.ok(r):
		return toHandler
	}
	return toCache
}

// namesFields reports whether Connection names fields as being for the next hop alone (RFC 9110,
// section 7.6.1). A proxy behind the cache, such as httputil.ReverseProxy, removes them from the
// request, also those that a layer in front has set: what a client names there chooses what the
// backend reads, so that the response is for this client alone. To remove them here instead would
// not do: sessions and languages are read in front of the cache. Options of the connection itself,
// and the fields that a proxy removes in any case, change nothing.
func namesFields(h http.Header) bool {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = trimOWS(name); name != "" && !slices.ContainsFunc(ofConnection, func(known string) bool { return strings.EqualFold(known, name) }) {
				return true
			}
		}
	}
	return false
}

// secondHost reports whether a request has a Host field that is not the host it is for (RFC 9113,
// section 8.3.1). A handler can read both.
func secondHost(r *http.Request) bool {
	lines := r.Header["Host"]
	return len(lines) > 1 || len(lines) == 1 && lines[0] != r.Host
}

var ofConnection = []string{"close", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}

func isRead(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// isSafe reports whether a method is registered as safe. One that is not known has to be taken for
// unsafe (RFC 9111, section 4.4).
func isSafe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "PROPFIND", "QUERY", "REPORT", "SEARCH":
		return true
	}
	return false
}

// maxLevels is how many responses of a resource a request looks at: each may say that others vary
// by more fields.
const maxLevels = 4

// read answers a GET or HEAD: from the process-local tier; from the store; else with what the
// handler says, to this request or to another one that came before it.
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
	x := &exchange{cache: c, w: w, r: r, next: next, key: key, base: key, asked: asked, came: time.Now()}
	if identified(r, nil) {
		x.base = identifiedKey(key)
	}
	if r.Method == http.MethodHead || r.Header["Range"] != nil || asked.onlyIfCached || asked.noStore {
		x.look()
		return
	}
	x.run()
}

// local answers from the process-local tier, if that has what is asked for.
func (c *Cache) local(w http.ResponseWriter, r *http.Request, key string, asked asked) bool {
	return c.localFrom(key, w, r, key, asked) || identified(r, nil) && c.localFrom(identifiedKey(key), w, r, key, asked)
}

func (c *Cache) localFrom(base string, w http.ResponseWriter, r *http.Request, key string, asked asked) bool {
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
			if !asked.takes(age, found.FreshFor, res.mustRevalidate) || !found.NotOlderThan(asked.token) {
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

// nextLevel is the key under which to look for the response that is selected by what this request
// has in the fields that a stored one varies by; "" if there is none to be had.
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

// hitStatus is the Cache-Status of a stored response.
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

// statusOf says what a request gets that can't be answered because of err.
func statusOf(err error) int {
	var there *cacheguard.LoadError
	var failed *statusError
	switch {
	case errors.As(err, &failed):
		return failed.status
	case errors.Is(err, errIncomplete), errors.Is(err, http.ErrAbortHandler):
		return http.StatusBadGateway
	case errors.Is(err, cacheguard.ErrOverloaded), errors.Is(err, cacheguard.ErrUnavailable), errors.Is(err, cacheguard.ErrClosed):
		return http.StatusServiceUnavailable // whatever it is that took too long
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	case errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	case errors.As(err, &there):
		var status int
		if n, _ := fmt.Sscanf(there.Text, "%d ", &status); n == 1 && status >= 500 && status <= 599 {
			return status
		}
	}
	return http.StatusInternalServerError
}

// errorText is what other processes get to know of a handler that failed: the status for those who
// wait, and no more, for the value of a panic may be anything.
func errorText(err error) string {
	text := fmt.Sprintf("%d %s", statusOf(err), http.StatusText(statusOf(err)))
	if isLast(err) {
		text += lastWord
	}
	return text
}

// retryAfter is what requests are told that came when there were too many.
const retryAfter = time.Second
