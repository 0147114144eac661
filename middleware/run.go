package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
	"weak"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/desk"
	"github.com/cacheguard/cacheguard/internal/report"
)

// errIncomplete says that a handler has not written the whole response, or may not have written it:
// see incomplete and contradicts.
var errIncomplete = errors.New("middleware: handler has not written the whole response")

// errNoClient says that a handler should run in the background but can't, because its request is
// gone.
var errNoClient = errors.New("middleware: the request that this load was for is gone")

// errPanicked says that a handler panicked, or ended its goroutine.
var errPanicked = errors.New("middleware: handler panicked")

// errNothing says that a handler that should refresh a stored response in the background returned
// without writing anything. With a client the server would send an empty 200, or a layer in front
// would send another response.
var errNothing = errors.New("middleware: handler wrote nothing")

// statusError is the error of a load whose response counts as a failure, so that a stale response
// may be served instead.
type statusError struct {
	status int
	// For its own client and, with share, for others; nil if its client has it already.
	res   *response
	stale cacheguard.Result[*response] // the response that may be served instead, if any
	// The exchange whose handler ran, or nil. The loader remembers errors for longer than the
	// exchange lasts, and must not keep its request.
	client weak.Pointer[exchange]
	share  bool // other requests may be given res
}

// isFor reports whether the request of x may be given e.res.
func (e *statusError) isFor(x *exchange) bool {
	return e.res != nil && (e.client == weak.Make(x) || e.share && e.res.answers(x.key, x.r.Header))
}

func (e *statusError) Error() string {
	return fmt.Sprintf("middleware: handler answered %d", e.status)
}

// run is one run of the handler whose response other requests may get.
type run struct {
	cache  *Cache
	client *exchange // the exchange that it answers, or nil
	key    string
	prev   *response                    // the stored response, if any
	found  cacheguard.Result[*response] // how prev was found
	ended  chan struct{}                // closed when result is there
	result ending                       // the result of the load; set before ended is closed
	split  atomic.Bool                  // the load doesn't want the response any more
	// The request has validators, so that the handler may answer 304.
	asks bool
	// The request identifies its user, and the run refreshes the response that is stored for all.
	guest bool
	load  *desk.Load

	rec   *recorder
	sent  sending
	req   *http.Request // as the handler gets it; the handler may change it
	asked http.Request  // a copy of req that the handler cannot change
}

// ending has the result of a load.
type ending struct {
	entry cacheguard.Entry[*response]
	err   error
}

// here runs the handler on the goroutine of its client.
func (u *run) here(load context.Context, t *turn) {
	t.away.Store(t.detached()) // if another load takes the lease, this load may have to begin again
	client := t.r.Context()
	if client.Err() != nil { // its route context may already belong to another request
		load = t.withRoute(load)
	}
	ctx, cancel := whileWanted(load, client)
	defer cancel(nil)
	u.client = t.exchange
	u.prepare(t.r, ctx)
	u.rec = newRecorder(u, t.w, t.w.Header(), cancel)
	whole := false
	defer func() {
		// If this load has ended early, another process may begin a load. A client that already has
		// its answer must not wait for that load, so the client leaves the desk. If the load's
		// cause is context.Canceled, the load has ended normally.
		if cause := context.Cause(load); cause != nil && cause != context.Canceled &&
			(!whole || t.answered || t.confirmed != nil) {
			t.desk.Leave()
		}
	}()
	// A mux behind the cache sets Pattern, and layers in front read it.
	defer func() { t.r.Pattern = u.req.Pattern }()
	u.serve(t.next)
	whole = true
}

var (
	panicLine = report.Line{Level: slog.LevelError,
		Text: "cacheguard: handler panicked in the background", See: "responses",
		Means: "requests that wait for it get an error or a stale response; the next request runs the handler again"}
	tagsLine = report.Line{Level: slog.LevelWarn,
		Text:  "cacheguard: a response has more tags than can be kept, and is not stored",
		See:   "responses",
		Means: "each request for this page runs the handler; this line is logged once"}
)

// elsewhere runs the handler on the load's own goroutine, for the requests that wait and for later
// ones.
func (u *run) elsewhere(load context.Context, t *turn) (cacheguard.Entry[*response], error) {
	away := t.away.Load()
	if away == nil {
		return cacheguard.Entry[*response]{}, errNoClient
	}
	req := away.req
	ctx, cancel := context.WithCancelCause(load)
	defer cancel(nil)
	route := req.Context().Value(chi.RouteCtxKey)
	if r, ok := route.(*chi.Context); ok && r != nil {
		route = cloneRoute(r)
	}
	// A copy, because a further run must not see what this handler changes.
	u.prepare(req.Clone(req.Context()), context.WithValue(ctx, chi.RouteCtxKey, route))
	u.rec = newRecorder(u, nil, away.front, cancel)
	defer func() {
		if v := recover(); v != nil {
			if v != http.ErrAbortHandler {
				panicLine.Log(ctx, u.cache.opts.Logger, "cache", u.cache.opts.Name, "panic", v,
					"stack", string(debug.Stack()))
			}
			panic(v) // the loader makes an error of it
		}
	}()
	u.serve(t.next)
	<-u.ended
	return u.result.entry, u.result.err
}

// serve runs the handler and ends the run, no matter how the handler ends.
func (u *run) serve(next http.Handler) {
	whole := false
	defer u.rec.tell() // without holding the mutex, so that nobody waits for the observer
	defer func() {
		if whole {
			return
		}
		v := recover() // v is nil after Goexit
		err, ok := v.(error)
		if ok {
			err = fmt.Errorf("%w: %w", errPanicked, err)
		} else {
			err = fmt.Errorf("%w: %v", errPanicked, v)
		}
		u.rec.abort(err)
		if v != nil {
			panic(v) // with the handler's frames still on the stack, for the code that prints them
		}
	}()
	u.sent = u.cache.sends()
	u.handler(next)
	u.rec.finish()
	whole = true
}

// handler calls the handler. httputil.ReverseProxy and others panic with http.ErrAbortHandler if a
// Write fails. If the Write has failed because nobody reads the body, the client gets its whole
// response, a 304, so the connection isn't aborted.
func (u *run) handler(next http.Handler) {
	defer func() {
		if u.rec.hasRefused() {
			if v := recover(); v != nil && v != http.ErrAbortHandler {
				panic(v)
			}
		}
	}()
	next.ServeHTTP(u.rec.writer(), u.req)
}

// end sets the result of the load. Only the first call has an effect, and returns true. After this
// call the response is stored even if all clients leave, because they may have received the whole
// response before the load returns. The caller holds the recorder's mutex.
func (u *run) end(e ending) (first bool) {
	if e.err == nil {
		u.load.Made()
	}
	select {
	case <-u.ended:
		return false
	default:
		u.result = e
		close(u.ended)
		return true
	}
}

// prepare makes the request for the handler. The handler's request asks for the whole response. If
// the stored response can be validated, the request asks whether that response is still good.
func (u *run) prepare(r *http.Request, ctx context.Context) {
	u.req = r.WithContext(context.WithValue(ctx, runOf{u.cache}, true))
	own := slices.ContainsFunc(personal, func(name string) bool { return r.Header[name] != nil })
	u.asks = u.prev != nil && u.prev.validates(r)
	// With HTTP/2 an empty body can be open, and reading it waits for the client.
	u.req.Body, u.req.Trailer = http.NoBody, nil
	u.req.Header = r.Header.Clone()
	for _, name := range personal {
		delete(u.req.Header, name)
	}
	if u.asks {
		u.prev.validators(u.req)
	}
	if u.asked = *u.req; own || u.asks {
		u.asked.Header = u.req.Header.Clone()
	} else {
		u.asked.Header = r.Header
	}
}

// personal are the fields by which a client asks for less than the whole response.
var personal = []string{"If-None-Match", "If-Modified-Since", "If-Range", "Range"}

// whileWanted returns the context of a handler that has a client of its own. The context ends when
// the load's context has ended and the client has left. Until then somebody wants the response.
func whileWanted(load, client context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(load))
	stopLoad := context.AfterFunc(load, func() {
		context.AfterFunc(client, func() { cancel(context.Cause(client)) })
	})
	return ctx, func(cause error) {
		stopLoad()
		cancel(cause)
	}
}

// verdict decides whether a response may be stored and shared. It needs the request, the status and
// the header, but not the body.
func (u *run) verdict(r *http.Request, status int, h http.Header) verdict {
	v := u.cache.rules.judge(r, status, h, u.sent.at, time.Now())
	if isStream(h) {
		v = verdict{remember: true, why: "event stream"}
	}
	if v.provoked && u.leaves(v) {
		// The response has no freshness of its own.
		v = verdict{failed: status >= 500, refused: v.refused, why: "no freshness"}
	}
	return v
}

// entry returns the entry that is stored for a response.
func (c *Cache) entry(v verdict, res *response) cacheguard.Entry[*response] {
	tags := tagsOf(res.key)
	more, ok := surrogateTags(res.header)
	e := cacheguard.Entry[*response]{
		Value: res, Tags: append(tags, more...), SoftTags: tags[:mostSoftTags],
	}
	switch {
	case v.share && v.store && ok && (v.fresh > 0 || v.revalidate > 0):
		e.TTL = clamp(v.fresh)
		// The stale windows of a response that arrives stale have already begun.
		over := max(-v.fresh, 0)
		e.StaleWhileRevalidate, e.StaleIfError, e.Keep = orNone(v.revalidate-over),
			orNone(v.ifError-over), v.keep
	case v.share:
		e.NoStore = true
		if !ok && c.tagsSaid.CompareAndSwap(false, true) {
			tagsLine.Log(context.Background(), c.opts.Logger, "cache", c.opts.Name, "most",
				mostSurrogates)
		}
	case v.store && ok:
		res.unshared = true
		e.NoShare, e.TTL, e.Keep = true, c.opts.HitForMiss, max(v.keep, time.Millisecond)
	default:
		return c.unshared(v)
	}
	return e
}

// leaves reports whether the stored response stays as it is although the new response is for its
// own client only. If the stored response is fresh, it stays, because any client can ask for a
// newer response with fields that make the handler refuse the request. If it is stale, it stays if
// the new response is such a refusal, or if the handler ran for a guest. A guest is a request that
// identifies its user. The handler may answer a guest differently from the requests for which the
// stored response was made.
func (u *run) leaves(v verdict) bool {
	return u.prev != nil && !u.prev.unshared && (u.found.FreshFor > 0 || v.refused || u.guest)
}

// isRefusal reports whether a status is about the request's form, its conditions, or the number of
// requests. A status such as 401, 403 or 410 is about the resource.
func isRefusal(status int) bool {
	switch status {
	case 400, 405, 406, 408, 411, 412, 413, 414, 415, 416, 417, 421, 422, 425, 426, 428, 429, 431:
		return true
	}
	return false
}

// entry returns the entry that is stored for a response.
func (u *run) entry(v verdict, res *response) cacheguard.Entry[*response] {
	if !v.share && u.leaves(v) {
		return u.unshared(v)
	}
	return u.cache.entry(v, res)
}

// unshared returns the entry of a response that is for its own client only.
func (u *run) unshared(v verdict) cacheguard.Entry[*response] {
	if u.leaves(v) {
		return cacheguard.Entry[*response]{NoShare: true, LeaveStored: true}
	}
	return u.cache.unshared(v)
}

// unshared returns the entry of a response that is for its own client only. A stored response
// doesn't stay beside this entry. If one may have to stay, use the method of run, which checks
// that.
func (c *Cache) unshared(v verdict) cacheguard.Entry[*response] {
	e := cacheguard.Entry[*response]{NoShare: true}
	if v.remember {
		e.TTL = c.opts.HitForMiss
	}
	return e
}

// clamp returns the TTL that is nearest to d and that the loader accepts.
func clamp(d time.Duration) time.Duration { return min(max(d, time.Millisecond), mostTTL) }

// orNone returns a stale window for the loader: -1 if there is none, because 0 would mean the
// loader's default.
func orNone(d time.Duration) time.Duration {
	if d <= 0 {
		return -1
	}
	return min(d, mostTTL)
}
