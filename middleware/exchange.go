package middleware

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
	"weak"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/desk"
)

// exchange is one request that the process-local tier didn't answer.
type exchange struct {
	cache *Cache
	w     http.ResponseWriter
	r     *http.Request
	next  http.Handler
	key   string // the key of the resource
	base  string // the key of the first response that it may wait for; see identifiedKey
	level string // the key of the response that is looked at
	asked asked

	// The response that is stored for this request is fresh, but the request doesn't accept it.
	forced bool
	// The request identifies its user, and gets the stale response that is stored for all; see
	// run.leaves.
	guest     bool
	route     *chi.Context      // a copy of the route context, made when the request came, or nil
	came      time.Time         // when the request was looked at first
	ran       bool              // the handler was begun for it
	again     bool              // the request is in its second try; see triesAgain
	answered  bool              // it was answered, by its own handler or by another request's
	confirmed *response         // the stored response, which the handler has confirmed by 304
	unstored  cacheguard.Reason // why the response in confirmed isn't stored, or 0
	others    *response         // a response that is being made, for requests with other fields

	stale  *response   // the stored response that the request doesn't accept, or nil
	passed int         // the status of the response that the handler has sent to this client alone
	said   http.Header // for a HEAD, the header of this response
	apart  bool        // the result of isApart
}

// turn is one call of the loader for an exchange. The load that this call begins may outlive the
// request.
type turn struct {
	*exchange
	desk *desk.Desk
	ran  atomic.Bool              // the handler was begun for this client, which happens once
	away atomic.Pointer[detached] // the request for a handler that runs without this client
}

// run gets the response and serves it. If the resource has variants, it goes from one level to the
// next until it finds the variant for this request.
func (x *exchange) run() {
	if routed := chi.RouteContext(x.r.Context()); routed != nil {
		x.route = cloneRoute(routed)
	}
	x.apart = x.isApart() // here, because Refreshes may be called on any goroutine
	if x.asked.maxStale >= 0 && x.stored() || x.base != x.key && x.storedFrom(x.key) {
		return
	}
	if !x.guest {
		x.level = x.base
	}
	for range maxLevels {
		res, err := x.ask()
		if err != nil && x.triesAgain(err) {
			res, err = x.ask()
		}
		if x.answered {
			x.publish(res)
			return
		}
		// x.others is a response for requests with other fields, which is still being made. Its
		// Vary is known, so this request looks for its own variant now.
		if x.others != nil {
			res, err, x.others = cacheguard.Result[*response]{Value: x.others}, nil, nil
		}
		if err != nil && x.confirmed != nil { // the confirmation came too late for others
			res, err = cacheguard.Result[*response]{
				Value: x.confirmed, Status: cacheguard.StatusLoaded,
			}, nil
		}
		if err != nil {
			x.failed(err)
			return
		}
		if res.Value == nil { // the response is for its own client only
			break
		}
		if res.Value.answers(x.key, x.r.Header) && res.Value.suits(x.r) {
			if x.tooOld(res) {
				x.alone("request")
				return
			}
			x.serve(res)
			return
		}
		if res.Status == cacheguard.StatusStale && x.level == x.base {
			x.cache.learns(x.base, res.Value)
		}
		if x.level = nextLevel(res.Value, x.key, x.base, x.level, x.r); x.level == "" {
			break
		}
	}
	x.alone("vary-miss")
}

// ask asks the loader for a response that this request accepts.
func (x *exchange) ask() (cacheguard.Result[*response], error) {
	res, err := x.get(x.cache.loads.GetEntry)
	// The request joined a load that may be older than its token. By now another load may have
	// begun.
	if err == nil && !x.answered && res.Status == cacheguard.StatusCoalesced && x.tooOld(res) {
		res, err = x.get(x.cache.loads.GetEntry)
	}
	if err == nil && !x.answered && !x.newEnough(res) {
		res, err = x.get(x.cache.loads.RefreshEntry)
	}
	for n := 0; n < moreAttempts && err == nil && !x.answered &&
		x.asked.token != (cacheguard.Token{}) && !x.newEnough(res); n++ {
		res, err = x.get(x.cache.loads.RefreshEntry)
	}
	return res, err
}

// newEnough reports whether the response res is new enough for the request. If res has no value or
// doesn't match the request, newEnough returns true, because then the caller doesn't use res as the
// answer. A response that matches is new enough if its handler ended after the request came, unless
// the response may be older than the request's token.
func (x *exchange) newEnough(res cacheguard.Result[*response]) bool {
	if res.Value == nil || !res.Value.answers(x.key, x.r.Header) {
		return true
	}
	if x.tooOld(res) {
		return false
	}
	if res.Err != nil {
		return true
	}
	age := res.Value.age + res.Age
	switch res.Status {
	case cacheguard.StatusHit:
		return x.asked.takes(age, res.FreshFor, res.Value.mustRevalidate)
	case cacheguard.StatusStale:
		return x.asked.takesMeanwhile(age, -res.FreshFor)
	}
	return true
}

// get calls the loader. The load may then run the handler on this goroutine.
func (x *exchange) get(
	ask func(context.Context, string,
		cacheguard.EntryFunc[*response]) (cacheguard.Result[*response], error),
) (res cacheguard.Result[*response], err error) {
	d := desk.Open(x.r.Context())
	d.Caller = x
	ctx := desk.With(x.r.Context(), d)
	if wait := x.cache.opts.WaitTimeout; wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	t := &turn{exchange: x, desk: d}
	defer d.Close()
	res, err = ask(ctx, x.level, t.load)
	x.ran = x.ran || t.ran.Load()
	// A refresh in the background, or a load that has not begun, outlives this request. Such a load
	// needs a copy, because the request itself must not be used after it has ended.
	if !x.answered && t.away.Load() == nil && (err != nil || res.Status == cacheguard.StatusStale) {
		t.away.Store(x.detached())
	}
	return res, err
}

// Refreshes reports whether this request may start a refresh of this response. Only a request that
// gets this variant may refresh it, because the handler may also use parts of its request that Vary
// doesn't name, such as a user that a layer in front has put into the context. If responses to this
// request aren't shared because of layers in front, a refresh behind its back would be for nobody.
func (x *exchange) Refreshes(stale any, behind bool) bool {
	res, ok := stale.(*response)
	return ok && res != nil && res.answers(x.key, x.r.Header) && !(behind && x.apart)
}

// isApart reports whether layers in front have set fields because of which each response to this
// request is for its own client only.
func (x *exchange) isApart() bool {
	h := x.w.Header()
	if h["Set-Cookie"] == nil && h["Cache-Control"] == nil {
		return false // usually
	}
	front := canonical(h)
	why, _ := x.cache.rules.forbidden(&http.Request{Method: http.MethodGet}, http.StatusOK, front,
		x.cache.rules.directives(front))
	return why != ""
}

// Parts reports whether a stale response has variants and is stored under the key at which this
// request looks first. A request for another variant goes on to the key of that variant. It leaves
// this response to the requests that get it, and those requests ask the handler whether the
// response is still good. If nobody requests this response any more, it expires in the store, and
// another variant is stored in its place.
func (x *exchange) Parts(stale any) bool {
	res, ok := stale.(*response)
	// x.level == x.key is for a guest: all guests look there first.
	first := x.level == x.base || x.level == x.key
	return ok && res != nil && first && res.key == x.key && len(res.vary) > 0
}

// The loader calls Hears with a response that is being made. If the response is for this request
// and other requests may already read it, this request reads it from now on. If its Vary says that
// it is for other requests, this request goes on to the key of its own variant.
func (x *exchange) Hears(word any) bool {
	head, _ := word.(*response)
	rec, live := word.(*recorder)
	if live {
		head = rec.shown
	}
	switch {
	case head == nil:
		return false
	case !head.answers(x.key, x.r.Header):
		if nextLevel(head, x.key, x.base, x.level, x.r) != "" {
			x.others = head
		}
		return x.others != nil
	case !live || !head.suits(x.r) || rec.brokenOff():
		return false
	// With HTTP/1.0 a response without a length ends when its connection ends. So a client would
	// take a response that breaks off for a whole one.
	case !x.r.ProtoAtLeast(1, 1) && head.header["Content-Length"] == nil:
		return false
	// The response may be older than a purge or commit that ended before this request came.
	case x.cache.opts.StrongReads, x.asked.token != cacheguard.Token{}:
		return false
	}
	x.answered = true
	rec.follow(x)
	return true
}

// load runs the handler. If this is the second try of the waiting requests, there is no further
// try.
func (t *turn) load(
	ctx context.Context, prev cacheguard.Result[*response],
) (e cacheguard.Entry[*response], err error) {
	if !t.again {
		return t.handle(ctx, prev)
	}
	tries := &t.cache.lastTries
	if err := tries.failedSince(t.level, t.came); err != nil {
		return e, err
	}
	err = lastError{errPanicked}
	defer func() {
		if err != nil {
			tries.fail(t.level, err,
				max(t.cache.opts.WaitTimeout, t.cache.opts.LoadTimeout, defaultLoadTimeout))
		}
	}()
	if e, err = t.handle(ctx, prev); err != nil {
		err = lastError{err}
	}
	return e, err
}

// handle runs the handler: on the goroutine of this client if the client waits for it, or else in
// the background.
func (t *turn) handle(
	ctx context.Context, prev cacheguard.Result[*response],
) (cacheguard.Entry[*response], error) {
	u := &run{
		cache: t.cache, key: t.key, guest: t.guest, load: desk.LoadOf(ctx), prev: prev.Value,
		found: prev, ended: make(chan struct{}),
	}
	if t.ran.CompareAndSwap(false, true) {
		if t.desk.Do(func() { u.here(ctx, t) }) {
			select {
			case <-u.ended:
				return u.result.entry, u.result.err
			case <-ctx.Done():
				select {
				case <-u.ended: // the run had ended before ctx
					return u.result.entry, u.result.err
				default:
				}
				u.split.Store(true)
				// The run keeps its slot until the handler returns or writes to its own client
				// only.
				<-u.ended
				return cacheguard.Entry[*response]{}, context.Cause(ctx)
			}
		}
		t.ran.Store(false)
	}
	return u.elsewhere(ctx, t)
}

// detached is a copy of a request that may be used after the request has ended.
type detached struct {
	req   *http.Request
	front http.Header // what layers in front have set in the response's header
}

// detached returns a copy of the request. Call it before anything is written to the client.
func (x *exchange) detached() *detached {
	away := x.r.Clone(x.withRoute(context.WithoutCancel(x.r.Context())))
	away.Body = http.NoBody
	d := &detached{req: away}
	if front := x.w.Header(); len(front) > 0 {
		d.front = front.Clone()
	}
	return d
}

// withRoute returns ctx with a route context of its own. When a request has ended, chi reuses its
// route context for another request. Behind http.TimeoutHandler a request can end while this
// goroutine still waits. So withRoute uses a copy of the route context, which was made when the
// request came.
func (x *exchange) withRoute(ctx context.Context) context.Context {
	if x.route == nil {
		return ctx
	}
	return context.WithValue(ctx, chi.RouteCtxKey, cloneRoute(x.route))
}

func cloneRoute(from *chi.Context) *chi.Context {
	to := chi.NewRouteContext()
	to.Routes, to.RoutePath, to.RouteMethod = from.Routes, from.RoutePath, from.RouteMethod
	to.RoutePatterns = slices.Clone(from.RoutePatterns)
	to.URLParams.Keys, to.URLParams.Values = slices.Clone(from.URLParams.Keys),
		slices.Clone(from.URLParams.Values)
	return to
}

// serve answers with a stored response, or with one that another request's handler made.
func (x *exchange) serve(res cacheguard.Result[*response]) {
	s := cacheStatus{}
	switch res.Status {
	case cacheguard.StatusHit, cacheguard.StatusStale:
		s = cacheStatus{hit: true, ttl: res.FreshFor, hasTTL: true}
		if res.Err != nil { // the handler was run, but failed
			s.hit, s.fwd = false, "stale"
			var failed *statusError
			if errors.As(res.Err, &failed) {
				s.fwdStatus = failed.status
			}
		}
		if res.Status == cacheguard.StatusStale {
			// A stale response has a negative ttl, even at the moment when its freshness ends.
			s.ttl = min(s.ttl, -1)
		}
	case cacheguard.StatusLoaded:
		s = cacheStatus{
			fwd: "stale", fwdStatus: http.StatusNotModified, stored: res.FreshFor > 0 &&
				x.unstored == 0, reason: x.unstored, ttl: res.FreshFor, hasTTL: res.FreshFor > 0,
		}
	default:
		s = cacheStatus{fwd: "uri-miss", collapsed: true, stored: res.FreshFor > 0}
	}
	x.cache.send(x.w, x.r, res.Value, res.Value.age+res.Age, x.cache.status(s, x.key))
}

// look answers with a stored response, or lets the handler answer this request alone.
func (x *exchange) look() {
	switch {
	case x.stored(), x.storedPart():
	case x.asked.onlyIfCached:
		http.Error(x.w, "not in the cache, and only-if-cached was asked for",
			http.StatusGatewayTimeout)
	case x.asked.noStore:
		x.alone("request")
	case x.r.Method == http.MethodHead:
		x.head()
	default:
		x.ranged()
	}
}

// stored answers with a stored response, if there is one that this request accepts.
func (x *exchange) stored() bool {
	return x.storedFrom(x.key) || x.base != x.key && x.storedFrom(x.base)
}

// meanwhile reports whether a stored response that is stale may be served while it is refreshed.
func (x *exchange) meanwhile(res cacheguard.Result[*response]) bool {
	over := -res.FreshFor
	if over < 0 || !x.asked.takesMeanwhile(res.Value.age+res.Age, over) {
		return false
	}
	// over already counts the time since the end of freshness. So the response is judged as of its
	// Date: otherwise judge would count the time since Date again.
	h, at := res.Value.header, time.Now()
	if made, dated := headerDate(h, "Date", at); dated {
		at = made
	}
	return x.cache.rules.judge(x.r, res.Value.status, h, at, at).revalidate > over
}

func (x *exchange) storedFrom(base string) bool {
	x.level = base
	for range maxLevels {
		res, err := x.cache.loads.Peek(x.r.Context(), x.level)
		if err != nil || res.Value == nil {
			return false
		}
		if res.Value.answers(x.key, x.r.Header) {
			if !res.Value.suits(x.r) {
				return false
			}
			age := res.Value.age + res.Age
			if !x.asked.takes(age, res.FreshFor, res.Value.mustRevalidate) {
				x.stale, x.forced = res.Value, x.forced || res.FreshFor > 0
				x.guest = base != x.base && x.meanwhile(res)
				return false
			}
			x.serve(res)
			return true
		}
		if res.FreshFor <= 0 && x.level == base {
			x.cache.learns(base, res.Value)
		}
		if x.level = nextLevel(res.Value, x.key, base, x.level, x.r); x.level == "" {
			return false
		}
	}
	return false
}

// failed answers a request for which there is no response.
func (x *exchange) failed(err error) {
	switch own := x.r.Context().Err(); {
	case own != nil:
		err = own
	case errors.Is(err, cacheguard.ErrClosed), errors.Is(err, cacheguard.ErrRecursion):
		x.alone("bypass")
		return
	case err == context.DeadlineExceeded: // its own WaitTimeout; the time-out of a load is wrapped
		x.alone("uri-miss")
		return
	}
	var failed *statusError
	if errors.As(err, &failed) {
		// With StrongReads, contentWith refuses a stale response from another request's run,
		// because it may be older than a purge that returned before this request came.
		if stale := failed.stale; x.contentWith(failed) {
			stale.Status = cacheguard.StatusStale
			x.serve(stale)
			return
		}
		if failed.isFor(x) {
			x.cache.send(x.w, x.r, failed.res, failed.res.age,
				x.cache.status(cacheStatus{fwd: "stale", fwdStatus: failed.status, collapsed: true},
					x.key))
			return
		}
	}
	x.cache.fail(x.w, x.r, x.key, statusOf(err), err)
}

// contentWith reports whether the request prefers the stale response to an error.
func (x *exchange) contentWith(failed *statusError) bool {
	stale := failed.stale
	return stale.Value != nil && stale.NotOlderThan(x.asked.token) &&
		(failed.client == weak.Make(x) || !x.cache.opts.StrongReads) &&
		x.asked.takesOnError(stale.Value, -stale.FreshFor) && stale.Value.answers(x.key, x.r.Header)
}

// fail answers a request for which there is no response.
func (c *Cache) fail(w http.ResponseWriter, r *http.Request, key string, status int, err error) {
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
	}
	if line := c.status(cacheStatus{fwd: "uri-miss", detail: "failed"}, key); line != "" {
		h := w.Header()
		h["Cache-Status"] = append(slices.Clip(h["Cache-Status"]), line)
	}
	if answer := c.opts.Error; answer != nil {
		answer(w, r, status, err)
		return
	}
	http.Error(w, http.StatusText(status), status)
}

// alone lets the handler answer as if there were no cache.
func (x *exchange) alone(why string) {
	status := cacheStatus{fwd: why, reason: x.reasonAlone(why)}
	x.passed, x.said = x.cache.pass(x.w, x.r, x.next, status)
}
