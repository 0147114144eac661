package middleware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// recorder is the ResponseWriter of a handler whose response others may get. It passes on what the handler writes to the
// client, if there is one, as soon as it is written, and keeps a copy for as long as the response can be given to others.
//
// The handler has a header map of its own, so that what is in the client's before it is called, which is for that client,
// is not taken for a part of the response.
type recorder struct {
	run    *run
	w      http.ResponseWriter // the client's; nil: there is none
	cancel context.CancelCauseFunc
	header http.Header
	before http.Header // what the client's header was

	mu       sync.Mutex // guards what follows: a timer stops recorders, and handlers may write from goroutines of their own
	status   int        // 0: the head is not written
	verdict  verdict
	res      *response // what is recorded
	on       bool      // it is recorded
	held     bool      // it is not what its client gets: a 304 about the stored one, or a failure while there is that one
	over     bool      // the handler has returned
	flushed  bool
	timer    *time.Timer // runs after a flush
	promised int64       // Content-Length, or -1
	written  int64
	to       audience
	outflow
}

// audience says what the client gets of what the handler writes.
type audience uint8

const (
	toClient  audience = iota
	headOnly           // a 304 is its answer
	toNobody           // it gets something else than this response
	goneAway           // there is no client
	discarded          // nor anybody else
)

// afterFlush is how long a response is recorded on after a flush: who flushes has something to say now, and perhaps for a
// long time.
const afterFlush = 50 * time.Millisecond

func newRecorder(u *run, w http.ResponseWriter, cancel context.CancelCauseFunc) *recorder {
	rec := &recorder{run: u, w: w, cancel: cancel, promised: -1, header: http.Header{}}
	rec.idle.L = &rec.mu
	if w == nil {
		rec.to = goneAway
		return rec
	}
	if h := w.Header(); len(h) > 0 {
		rec.before, rec.header = canonical(h.Clone()), h.Clone()
	}
	return rec
}

// Header is the handler's own map.
func (rec *recorder) Header() http.Header { return rec.header }

// WriteHeader passes an informational response on, and with a final one decides what is to become of the response.
func (rec *recorder) WriteHeader(status int) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if !rec.over {
		rec.head(status)
	}
}

func (rec *recorder) head(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("middleware: invalid WriteHeader code %v", status)) // as net/http does
	}
	switch {
	case rec.status != 0:
		if rec.to == toClient {
			rec.w.WriteHeader(status) // the server logs that it is too late
		}
		return
	case status >= 100 && status < 200 && status != http.StatusSwitchingProtocols:
		if rec.w != nil {
			rec.sync(nil)
			rec.w.WriteHeader(status)
		}
		return
	}
	rec.status = status
	if n, err := strconv.ParseInt(rec.header.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		rec.promised = n
	}
	if (rec.ended() && !rec.isNews(status)) || status == http.StatusSwitchingProtocols {
		rec.stop()
		rec.pass(cacheStatus{})
		return
	}
	if rec.instead(status) {
		return
	}
	u := rec.run
	rec.verdict = u.verdict(u.req, status, rec.header)
	if rec.header["Date"] == nil { // the server would add one, to what is stored too late
		rec.header["Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
	}
	if rec.verdict.share || rec.verdict.store {
		rec.on = rec.promised <= int64(u.cache.opts.MaxBody)
	}
	if !rec.on {
		rec.stop()
	} else {
		rec.res = rec.stored(status)
	}
	rec.pass(cacheStatus{stored: rec.on && rec.verdict.store})
}

// isNews reports whether a response with this status says that the stored one is still good.
func (rec *recorder) isNews(status int) bool { return status == http.StatusNotModified && rec.run.asks }

// ended reports whether the load doesn't want the response any more.
func (rec *recorder) ended() bool {
	select {
	case <-rec.run.split:
		return true
	default:
		return false
	}
}

// instead says whether this response is the news about another one, which is what the client gets: that the stored one
// is still good, or that there is only a stale one.
func (rec *recorder) instead(status int) bool {
	u := rec.run
	switch {
	case rec.isNews(status):
		rec.on = true
	case u.stale(status):
		rec.on = true
		rec.verdict = u.verdict(u.req, status, rec.header)
		rec.res = rec.stored(status)
	default:
		return false
	}
	rec.held = true
	if rec.to == toClient {
		rec.to = toNobody
	}
	return true
}

// stored is the response without its body, as it may be given to others.
func (rec *recorder) stored(status int) *response {
	u := rec.run
	all := canonical(rec.header)
	own := ownFields(all, rec.before)
	if vary, has := all["Vary"]; has && own["Vary"] == nil {
		own = maps.Clone(own)
		own["Vary"] = vary // by which it is selected, whoever says so
	}
	res := &response{
		key: u.key, status: status, age: rec.verdict.age, mustRevalidate: rec.verdict.mustRevalidate,
		header: storedHeader(own, rec.verdict.drop),
	}
	res.vary, _ = varyOf(all)
	res.selected = selectedBy(res.vary, u.req.Header)
	return res
}

// pass sends the head to the client.
func (rec *recorder) pass(s cacheStatus) {
	if rec.w == nil {
		return
	}
	u := rec.run
	status := rec.status
	if status == http.StatusOK {
		asked := &response{status: status, header: rec.header}
		if asked.answer(u.client.r) == answerNotModified {
			status = http.StatusNotModified
			rec.to = headOnly
		}
	}
	s.fwd = u.why()
	if s.fwd == "stale" || u.asks {
		s.fwdStatus = rec.status
	}
	rec.sync(func(h http.Header) {
		if line := u.cache.status(s, u.key); line != "" {
			h["Cache-Status"] = append(slices.Clip(h["Cache-Status"]), line)
		}
		if rec.to == headOnly {
			notModified(h)
		}
	})
	u.client.answered = true
	rec.w.WriteHeader(status)
}

// sync makes the client's header what the handler's is, and then what edit makes of it.
func (rec *recorder) sync(edit func(http.Header)) {
	h := rec.w.Header()
	for name := range h {
		if _, ok := rec.header[name]; !ok {
			delete(h, name)
		}
	}
	maps.Copy(h, rec.header)
	if edit != nil {
		edit(h)
	}
}

// Write passes on, and records.
func (rec *recorder) Write(p []byte) (int, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if err := rec.keep(len(p), func() { rec.res.body = append(rec.res.body, p...) }); err != nil {
		return 0, err
	}
	if rec.to != toClient || rec.flows() {
		return len(p), nil
	}
	n, err := rec.w.Write(p)
	return rec.wrote(n, len(p), err)
}

// WriteString is Write.
func (rec *recorder) WriteString(s string) (int, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if err := rec.keep(len(s), func() { rec.res.body = append(rec.res.body, s...) }); err != nil {
		return 0, err
	}
	if rec.to != toClient || rec.flows() {
		return len(s), nil
	}
	n, err := io.WriteString(rec.w, s)
	return rec.wrote(n, len(s), err)
}

// wrote is what a Write returns that wrote so much of so much to the client.
func (rec *recorder) wrote(n, of int, err error) (int, error) {
	rec.sent += n
	if err != nil && rec.on { // this client has left, and others wait
		return of, nil
	}
	return n, err
}

// keep records, or finds out that it can't.
func (rec *recorder) keep(n int, record func()) error {
	if rec.over { // others may have the response already
		return errOver
	}
	if rec.status == 0 {
		rec.head(http.StatusOK)
	}
	switch {
	case rec.to == discarded:
		return errNobody
	case !mayHaveBody(rec.status):
		return http.ErrBodyNotAllowed
	case rec.promised >= 0 && rec.written+int64(n) > rec.promised:
		return http.ErrContentLength
	}
	rec.written += int64(n)
	switch {
	case !rec.on || rec.res == nil:
	case rec.held && rec.written > int64(rec.run.cache.opts.MaxBody): // what counts is that it is one
		rec.res.header, rec.res.body = http.Header{}, nil
	case rec.ended(), rec.flushed && n > 0 && !rec.run.cache.opts.RecordFlushed, rec.written > int64(rec.run.cache.opts.MaxBody):
		rec.stop()
	default:
		if cap(rec.res.body) == 0 && rec.promised > 0 {
			rec.res.body = make([]byte, 0, rec.promised)
		}
		record()
		rec.out = rec.res.body
	}
	if rec.to == discarded {
		return errNobody
	}
	return nil
}

// errNobody is what a handler gets that goes on writing in the background what can't be stored.
var errNobody = errors.New("middleware: nobody gets this response")

// errOver is what a goroutine gets that a handler has left behind.
var errOver = errors.New("middleware: the handler has returned")

// stop ends the recording: the response is for its client alone. Who waits is told.
func (rec *recorder) stop() {
	rec.on, rec.res = false, nil
	v := rec.verdict
	if v.share || v.store {
		v = verdict{remember: true} // too long, or a stream
	}
	rec.run.end(ending{entry: rec.run.cache.unshared(v)})
	if rec.w == nil {
		rec.to = discarded
		rec.cancel(errNobody)
	}
}

// abort ends the run of a handler that didn't return.
func (rec *recorder) abort(err error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.finished()
	rec.run.end(ending{err: err})
	rec.broken = true // what is on its way is a part of nothing
	rec.settle()
}

func (rec *recorder) finished() {
	rec.over = true
	if rec.timer != nil {
		rec.timer.Stop()
	}
}

// finish ends the run of a handler that returned.
func (rec *recorder) finish() {
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
	rec.finished()
	trailer := rec.trailers()
	defer func() { // after those who wait were told
		if rec.to == toClient || rec.to == headOnly {
			rec.drain()
			maps.Copy(rec.w.Header(), trailer)
		}
	}()
	switch {
	case !rec.on:
		u.end(ending{entry: u.cache.unshared(rec.verdict)}) // it was said already
	case rec.isNews(rec.status):
		e := u.confirmed(canonical(rec.header), rec.before)
		if u.client != nil {
			u.client.confirmed = e.entry.Value
		}
		u.end(e)
	case rec.promised > rec.written && mayHaveBody(rec.status):
		u.end(ending{err: errIncomplete})
	case rec.held:
		u.end(ending{err: &statusError{rec.res, u.found, u.client, rec.verdict.share}})
	default:
		rec.res.trailer = storedTrailer(trailer, rec.before, rec.verdict.drop)
		if h := rec.res.header; h["Content-Type"] == nil && h["Content-Encoding"] == nil && len(rec.res.body) > 0 && rec.before["Content-Type"] == nil {
			if _, silent := rec.header["Content-Type"]; !silent { // what the server guesses for this client
				h["Content-Type"] = []string{http.DetectContentType(rec.res.body)}
			}
		}
		u.end(ending{entry: u.cache.entry(rec.verdict, rec.res)})
	}
}

// silent ends the run of a handler that wrote nothing. That is left as it is, for whoever is in front to make something of,
// and is for nobody else.
func (rec *recorder) silent() {
	rec.finished()
	if rec.w == nil {
		rec.run.end(ending{err: errNothing})
		return
	}
	rec.sync(nil)
	rec.run.client.answered = true
	rec.run.end(ending{entry: cacheguard.Entry[*response]{NoShare: true}})
}

// isStream reports whether a response is one of events, which come when they come.
func isStream(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}
