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

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/desk"
	"github.com/cacheguard/cacheguard/internal/report"
)

// errIncomplete says that a handler promised more bytes than it wrote, or has failed when it had
// begun to write.
var errIncomplete = errors.New("middleware: handler has not written the whole response")

// errNoClient says that a handler had to run for nobody in particular, and can't: its request is
// gone.
var errNoClient = errors.New("middleware: the request that this load was for is gone")

// errPanicked says that a handler panicked, or ended its goroutine.
var errPanicked = errors.New("middleware: handler panicked")

// errNothing says that a handler returned without a word. The server makes an empty 200 of that, or
// somebody in front makes something else.
var errNothing = errors.New("middleware: handler wrote nothing")

// statusError is a response that is as good as none while something stale may be served.
type statusError struct {
	status int
	res    *response                    // for its own client, and with share for others; nil if that has it
	stale  cacheguard.Result[*response] // what may be served instead, if anything
	client *exchange                    // whose handler it was, or nil
	share  bool                         // others may have it
}

// isFor reports whether a request may have this response.
func (e *statusError) isFor(x *exchange) bool {
	return e.res != nil && (e.client == x || e.share && e.res.answers(x.key, x.r.Header))
}

func (e *statusError) Error() string {
	return fmt.Sprintf("middleware: handler answered %d", e.status)
}

// run is one run of the handler whose response others may get.
type run struct {
	cache  *Cache
	client *exchange // whom it answers, or nil
	key    string
	prev   *response                    // what is stored, if anything is
	found  cacheguard.Result[*response] // the same, and how
	ended  chan struct{}                // closed when result is there
	result ending                       // what the load returns, not before ended is closed
	split  atomic.Bool                  // the load doesn't want the response any more
	asks   bool                         // for a 304
	guest  bool                         // it refreshes what is stored for all, for a request that says who asks
	load   *desk.Load

	rec   *recorder
	sent  sending
	req   *http.Request // as the handler gets it, which may change it
	asked http.Request  // the same, unchanged
}

// ending is what a load returns.
type ending struct {
	entry cacheguard.Entry[*response]
	err   error
}

// here runs the handler on the goroutine of its client.
func (u *run) here(load context.Context, t *turn) {
	t.away.Store(t.detached()) // in case another load takes the lease, and this one has to begin again
	client := t.r.Context()
	if client.Err() != nil { // its route context may be another one's by now
		load = t.withRoute(load)
	}
	ctx, cancel := whileWanted(load, client)
	defer cancel(nil)
	u.client = t.exchange
	u.prepare(t.r, ctx)
	u.rec = newRecorder(u, t.w, cancel)
	whole := false
	defer func() {
		// A load that is over may be followed by one in another process, which is nothing to a
		// client that has an answer. One whose context was only tidied up has ended as it should.
		if cause := context.Cause(load); cause != nil && cause != context.Canceled && (!whole || t.answered || t.confirmed != nil) {
			t.desk.Leave()
		}
	}()
	defer func() { t.r.Pattern = u.req.Pattern }() // a mux behind the cache sets it, and layers in front read it
	u.serve(t.next)
	whole = true
}

var (
	panicLine = report.Line{Level: slog.LevelError, Text: "cacheguard: handler panicked in the background", See: "responses",
		Means: "those who wait for it get an error or something stale; the next request runs the handler again"}
	tagsLine = report.Line{Level: slog.LevelWarn, Text: "cacheguard: a response has more tags than can be kept, and is not stored", See: "responses",
		Means: "each request of its page runs the handler; said once"}
)

// elsewhere runs the handler on the load's own goroutine, for those who wait and for later.
func (u *run) elsewhere(load context.Context, t *turn) (cacheguard.Entry[*response], error) {
	req := t.away.Load()
	if req == nil {
		return cacheguard.Entry[*response]{}, errNoClient
	}
	ctx, cancel := context.WithCancelCause(load)
	defer cancel(nil)
	u.prepare(req, context.WithValue(ctx, chi.RouteCtxKey, req.Context().Value(chi.RouteCtxKey)))
	u.rec = newRecorder(u, nil, cancel)
	defer func() {
		if v := recover(); v != nil {
			if v != http.ErrAbortHandler {
				panicLine.Log(ctx, u.cache.opts.Logger, "cache", u.cache.opts.Name, "panic", v, "stack", string(debug.Stack()))
			}
			panic(v) // the loader makes an error of it
		}
	}()
	u.serve(t.next)
	<-u.ended
	return u.result.entry, u.result.err
}

// serve runs the handler and ends the run, whichever way the handler ends.
func (u *run) serve(next http.Handler) {
	whole := false
	defer func() {
		if whole {
			return
		}
		v := recover() // nil is Goexit
		err, ok := v.(error)
		if ok {
			err = fmt.Errorf("%w: %w", errPanicked, err)
		} else {
			err = fmt.Errorf("%w: %v", errPanicked, v)
		}
		u.rec.abort(err)
		if v != nil {
			panic(v) // with the handler's frames still on the stack, for whoever prints them
		}
	}()
	u.sent = u.cache.sends()
	next.ServeHTTP(u.rec.writer(), u.req)
	u.rec.finish()
	whole = true
}

// end says what the load returns. Only the first one counts. From then on it is stored, whoever
// leaves: clients may have all of it before the load has returned, and go. The recorder's mutex is
// held.
func (u *run) end(e ending) {
	if e.err == nil {
		u.load.Made()
	}
	select {
	case <-u.ended:
	default:
		u.result = e
		close(u.ended)
	}
}

// prepare makes the request for the handler: one for the whole response, or for the news about the
// stored one.
func (u *run) prepare(r *http.Request, ctx context.Context) {
	u.req = r.WithContext(context.WithValue(ctx, runOf{u.cache}, true))
	own := slices.ContainsFunc(personal, func(name string) bool { return r.Header[name] != nil })
	u.asks = u.prev != nil && u.prev.validates(r)
	u.req.Body, u.req.Trailer = http.NoBody, nil // by HTTP/2 an empty body can be open, and its reader waits for the client
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

// whileWanted is the context of a handler that has a client of its own: it ends when the load's has
// ended and the client has left. Until then there is somebody who wants the response.
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

// verdict decides about a response by its head.
func (u *run) verdict(r *http.Request, status int, h http.Header) verdict {
	v := u.cache.rules.judge(r, status, h, u.sent.at, time.Now())
	if isStream(h) {
		v = verdict{remember: true, why: "event stream"}
	}
	if v.provoked && u.leaves() {
		v = verdict{failed: status >= 500, why: "no freshness"} // of its own
	}
	return v
}

// entry is what is stored of a response.
func (c *Cache) entry(v verdict, res *response) cacheguard.Entry[*response] {
	tags := tagsOf(res.key)
	more, ok := surrogateTags(res.header)
	e := cacheguard.Entry[*response]{Value: res, Tags: append(tags, more...), SoftTags: tags[:mostSoftTags]}
	switch {
	case v.share && v.store && ok && (v.fresh > 0 || v.revalidate > 0):
		e.TTL = clamp(v.fresh)
		over := max(-v.fresh, 0) // the windows of what comes stale have begun
		e.StaleWhileRevalidate, e.StaleIfError, e.Keep = orNone(v.revalidate-over), orNone(v.ifError-over), v.keep
	case v.share:
		e.NoStore = true
		if !ok && c.tagsSaid.CompareAndSwap(false, true) {
			tagsLine.Log(context.Background(), c.opts.Logger, "cache", c.opts.Name, "most", mostSurrogates)
		}
	case v.store && ok:
		res.unshared = true
		e.NoShare, e.TTL, e.Keep = true, c.opts.HitForMiss, max(v.keep, time.Millisecond)
	default:
		return c.unshared(v)
	}
	return e
}

// leaves reports whether a response that is for its own client only leaves what is stored alone: if
// that is fresh, for any client can ask for something newer, with whatever fields have the handler
// refuse it; and if it is stale and the handler ran for somebody who gets something else than those
// for whom it is stored.
func (u *run) leaves() bool {
	return u.prev != nil && !u.prev.unshared && (u.found.FreshFor > 0 || u.guest)
}

// entry is what is stored of a response.
func (u *run) entry(v verdict, res *response) cacheguard.Entry[*response] {
	if !v.share && u.leaves() {
		return u.unshared(v)
	}
	return u.cache.entry(v, res)
}

// unshared is what is stored of a response that is for its own client only.
func (u *run) unshared(v verdict) cacheguard.Entry[*response] {
	if u.leaves() {
		return cacheguard.Entry[*response]{NoShare: true, LeaveStored: true}
	}
	return u.cache.unshared(v)
}

// unshared is what is stored of a response that is for its own client only, if there is nothing to
// be left alone.
func (c *Cache) unshared(v verdict) cacheguard.Entry[*response] {
	e := cacheguard.Entry[*response]{NoShare: true}
	if v.remember {
		e.TTL = c.opts.HitForMiss
	}
	return e
}

// clamp makes a TTL that the loader takes.
func clamp(d time.Duration) time.Duration { return min(max(d, time.Millisecond), mostTTL) }

// orNone makes a stale window that is not the loader's default.
func orNone(d time.Duration) time.Duration {
	if d <= 0 {
		return -1
	}
	return min(d, mostTTL)
}
