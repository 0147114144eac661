package middleware

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"
	"weak"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// This file ends recorders. If the response turns out to be for its own client alone, the recording
// and the run end at once. Otherwise the run ends when the handler ends, no matter how.

// errNobody is the error of Write for a handler that continues to write in the background although
// its response can't be stored.
var errNobody = errors.New("middleware: nobody gets this response")

// errOver is the error of Write for a goroutine that still writes after its handler has returned.
var errOver = errors.New("middleware: the handler has returned")

// stop ends the recording, because the response is for its own client only. It tells this to the
// requests that wait.
func (rec *recorder) stop(why cacheguard.Reason) {
	rec.on, rec.res = false, nil
	rec.is(cutOff)
	if rec.why == 0 {
		rec.why = why
	}
	v := rec.verdict
	if v.share || v.store {
		// The verdict allowed storing. The recording ends for another reason, such as a body above
		// MaxBody or a stream.
		v = verdict{remember: true, refused: v.refused}
	}
	rec.stays(why)
	switch {
	case why == cacheguard.ReasonIncomplete:
		rec.run.end(ending{err: errIncomplete})
	case v.failed:
		rec.run.end(ending{
			err: &statusError{status: rec.status, client: weak.Make(rec.run.client)},
		})
	default:
		rec.run.end(ending{entry: rec.run.unshared(v)})
	}
	if rec.w == nil {
		rec.to = discarded
		rec.cancel(errNobody)
	}
}

// stays keeps the load's slot for the handler, because the load is about to end. If the response is
// a stream, stays doesn't keep the slot: a stream has a slot only until its first bytes are sent.
func (rec *recorder) stays(why cacheguard.Reason) {
	turns := rec.run.cache.turns
	stream := rec.flushes > 0 || why == cacheguard.ReasonFlushed ||
		why == cacheguard.ReasonTakenOver ||
		rec.status == http.StatusSwitchingProtocols || isStream(rec.header)
	if turns == nil || rec.w == nil || rec.over || stream {
		return
	}
	if release := rec.run.load.Keep(); release != nil {
		rec.place = turns.place(release)
	}
}

// streams gives the slot back. It doesn't hold the mutex meanwhile, because a slot of a fleet's
// limit is released by a call to the store.
func (rec *recorder) streams() {
	at := rec.place
	rec.mu.Unlock()
	defer rec.mu.Lock()
	at.leave()
}

// abort ends the run of a handler that panicked or ended its goroutine. If the client's writer has
// panicked when the handler had returned, the run has ended already.
func (rec *recorder) abort(err error) {
	rec.returned()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.run.end(ending{err: err}) {
		rec.why = cacheguard.ReasonIncomplete
	}
	rec.is(cutOff)
	// The handler's own client gets the same bytes as without the cache. If the client's writer
	// panics meanwhile, only the handler's panic goes on.
	rec.catchUp()
}

// tell is called when the handler is done. If the response is not stored, it tells the observer.
func (rec *recorder) tell() { rec.run.cache.tell(rec.run.req.Context(), rec.run.key, rec.why) }

// returned is called when the handler has ended, before the recorder waits for the client.
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
	rec.mu.Lock()
	defer rec.mu.Unlock()
	u := rec.run
	if rec.status == 0 {
		said := rec.header
		if rec.w == nil { // what layers in front have set is no response
			said = ownFields(canonical(said), rec.before)
		}
		if !u.cache.rules.speaks(said) {
			rec.silent()
			return
		}
		rec.head(http.StatusOK)
	}
	trailer := rec.trailers()
	defer func() { // after the waiting requests were told
		rec.drain()
		if rec.to == toClient || rec.to == headOnly {
			maps.Copy(rec.w.Header(), trailer)
		}
	}()
	switch {
	case !rec.on:
		u.end(ending{entry: u.unshared(rec.verdict)}) // stop has already ended the run
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
		u.end(ending{err: &statusError{
			rec.status, rec.res, u.found, weak.Make(u.client), rec.verdict.share,
		}})
	default:
		if body := rec.res.body; cap(body)-len(body) > max(len(body)/4, buffered) {
			rec.res.body = slices.Clone(body) // see makeRoom
			rec.out = rec.res.body
		}
		rec.res.trailer = storedTrailer(trailer, rec.before, rec.verdict.drop)
		rec.tail = rec.res.trailer
		rec.is(whole)
		if h := rec.res.header; h["Content-Type"] == nil && h["Content-Encoding"] == nil &&
			len(rec.res.body) > 0 && rec.before["Content-Type"] == nil {
			// Store the type that the server guesses for this client.
			if _, silent := rec.header["Content-Type"]; !silent {
				rec.res.header = maps.Clone(h) // other goroutines may be reading the header
				rec.res.header["Content-Type"] = []string{http.DetectContentType(rec.res.body)}
			}
		}
		u.end(ending{entry: rec.keeps(u.entry(rec.verdict, rec.res))})
	}
}

// incomplete reports whether a response is not whole, or may not be whole, although its handler has
// returned. A response with fewer bytes than its Content-Length is not whole.
func (rec *recorder) incomplete() bool {
	if !mayHaveBody(rec.status) {
		return false
	}
	if rec.promised >= 0 {
		return rec.promised > rec.written
	}
	return gaveUp(rec.run.asked.Context()) // the handler may have changed the context of req
}

// gaveUp reports whether a response without a Content-Length may not be whole, because the context
// of its handler has ended. Handlers then return after a part of the body. gaveUp also checks the
// context's deadline: a database client compares the deadline with the clock, so it may give up a
// moment before the context ends.
func gaveUp(ctx context.Context) bool {
	end, has := ctx.Deadline()
	return ctx.Err() != nil || has && !time.Now().Before(end)
}

// silent ends the run of a handler that wrote nothing. The empty response is passed on unchanged,
// because a layer in front may turn it into another response. Nobody else gets it.
func (rec *recorder) silent() {
	switch {
	case rec.w != nil:
		rec.run.client.answered = true
	case rec.run.prev != nil: // the stored response stays
		e := ending{entry: cacheguard.Entry[*response]{NoShare: true, LeaveStored: true}}
		if max(rec.run.found.FreshFor, rec.run.found.UsableFor) > 0 {
			e = ending{err: errNothing} // those who wait get the stored response
		}
		rec.run.end(e)
		return
	}
	rec.run.end(ending{entry: rec.run.unshared(verdict{})}) // before drain waits for the client
	if rec.w != nil {
		rec.drain()
		rec.sync(rec.header)
	}
}
