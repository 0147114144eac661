package middleware

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// How a recorder ends: its recording, when the response turns out to be for its client alone, and
// its run, whichever way the handler ends.

// errNobody is what a handler gets that goes on writing in the background what can't be stored.
var errNobody = errors.New("middleware: nobody gets this response")

// errOver is what a goroutine gets that a handler has left behind.
var errOver = errors.New("middleware: the handler has returned")

// stop ends the recording: the response is for its client alone. Who waits is told.
func (rec *recorder) stop(why cacheguard.Reason) {
	rec.on, rec.res = false, nil
	rec.is(cutOff)
	if rec.why == 0 {
		rec.why = why
	}
	v := rec.verdict
	if v.share || v.store {
		v = verdict{remember: true} // too long, or a stream
	}
	rec.stays(why)
	switch {
	case why == cacheguard.ReasonIncomplete:
		rec.run.end(ending{err: errIncomplete})
	case v.failed:
		rec.run.end(ending{err: &statusError{status: rec.status, client: rec.run.client}})
	default:
		rec.run.end(ending{entry: rec.run.unshared(v)})
	}
	if rec.w == nil {
		rec.to = discarded
		rec.cancel(errNobody)
	}
}

// stays keeps the slot of the load, which is about to end, for the handler. What is sent while its
// handler runs is counted by its start.
func (rec *recorder) stays(why cacheguard.Reason) {
	turns := rec.run.cache.turns
	stream := rec.flushes > 0 || why == cacheguard.ReasonFlushed || why == cacheguard.ReasonTakenOver ||
		rec.status == http.StatusSwitchingProtocols || isStream(rec.header)
	if turns == nil || rec.w == nil || rec.over || stream {
		return
	}
	if release := rec.run.load.Keep(); release != nil {
		rec.place = turns.place(release)
	}
}

// streams gives the slot back without the lock, for a budget of the fleet is told of that.
func (rec *recorder) streams() {
	at := rec.place
	rec.mu.Unlock()
	defer rec.mu.Lock()
	at.leave()
}

// abort ends the run of a handler that didn't return.
func (rec *recorder) abort(err error) {
	rec.returned()
	defer rec.tell() // holding nobody up
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.why = cacheguard.ReasonIncomplete
	rec.run.end(ending{err: err})
	rec.is(cutOff)
	rec.catchUp() // its own client sees what it would see without the cache; what the client's writer panics with is less
}

// tell tells the observer if the response is not stored, once the handler is done.
func (rec *recorder) tell() { rec.run.cache.tell(rec.run.req.Context(), rec.run.key, rec.why) }

// returned is called when the handler has ended, before its client is waited for.
func (rec *recorder) returned() {
	rec.mu.Lock()
	rec.over = true
	if rec.timer != nil {
		rec.timer.Stop()
	}
	at := rec.place
	rec.mu.Unlock()
	at.leave()
}

// finish ends the run of a handler that returned.
func (rec *recorder) finish() {
	rec.returned()
	defer rec.tell() // holding nobody up
	rec.mu.Lock()
	defer rec.mu.Unlock()
	u := rec.run
	if rec.status == 0 {
		if !u.cache.rules.speaks(rec.header) {
			rec.silent()
			return
		}
		rec.head(http.StatusOK)
	}
	trailer := rec.trailers()
	defer func() { // after those who wait were told
		rec.drain()
		if rec.to == toClient || rec.to == headOnly {
			maps.Copy(rec.w.Header(), trailer)
		}
	}()
	switch {
	case !rec.on:
		u.end(ending{entry: u.unshared(rec.verdict)}) // it was said already
	case rec.isNews(rec.status):
		e := u.confirmed(canonical(rec.header), rec.before)
		if e.entry = rec.keeps(e.entry); u.client != nil {
			u.client.confirmed, u.client.unstored = e.entry.Value, rec.why
		}
		u.end(e)
	case rec.incomplete():
		rec.why = cacheguard.ReasonIncomplete
		rec.is(cutOff)
		u.end(ending{err: errIncomplete})
	case rec.held:
		u.end(ending{err: &statusError{rec.status, rec.res, u.found, u.client, rec.verdict.share}})
	default:
		if body := rec.res.body; cap(body)-len(body) > max(len(body)/4, buffered) {
			rec.res.body = slices.Clone(body) // see makeRoom
			rec.out = rec.res.body
		}
		rec.res.trailer = storedTrailer(trailer, rec.before, rec.verdict.drop)
		rec.tail = rec.res.trailer
		rec.is(whole)
		if h := rec.res.header; h["Content-Type"] == nil && h["Content-Encoding"] == nil && len(rec.res.body) > 0 && rec.before["Content-Type"] == nil {
			if _, silent := rec.header["Content-Type"]; !silent { // what the server guesses for this client
				rec.res.header = maps.Clone(h) // others may be reading it
				rec.res.header["Content-Type"] = []string{http.DetectContentType(rec.res.body)}
			}
		}
		u.end(ending{entry: rec.keeps(u.entry(rec.verdict, rec.res))})
	}
}

// incomplete reports whether a response that its handler has returned from is not whole, or not for
// sure: it has less than its Content-Length, or without one was ended by its context, on which
// handlers return with what they have written by then. A client of a database goes by the deadline
// itself, which can be over a moment earlier.
func (rec *recorder) incomplete() bool {
	if !mayHaveBody(rec.status) {
		return false
	}
	if rec.promised >= 0 {
		return rec.promised > rec.written
	}
	ctx := rec.run.asked.Context() // that of req may be another one by now
	end, has := ctx.Deadline()
	return ctx.Err() != nil || has && !time.Now().Before(end)
}

// silent ends the run of a handler that wrote nothing. That is left as it is, for whoever is in
// front to make something of, and is for nobody else.
func (rec *recorder) silent() {
	if rec.w == nil {
		rec.run.end(ending{err: errNothing})
		return
	}
	rec.run.client.answered = true
	rec.run.end(ending{entry: rec.run.unshared(verdict{})}) // before the client is waited for
	rec.drain()
	rec.sync(rec.header)
}
