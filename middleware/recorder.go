package middleware

import (
	"context"
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

// recorder is the ResponseWriter of a handler whose response others may get. For as long as that is
// so the handler writes to memory, from where its client, if there is one, and those who wait read;
// after that it writes to its client.
//
// The handler has a header map of its own, so that what is in the client's before it is called,
// which is for that client, is not taken for a part of the response.
type recorder struct {
	run    *run
	w      http.ResponseWriter // the client's; nil: there is none
	cancel context.CancelCauseFunc
	header http.Header
	before http.Header // what the client's header was

	mu       sync.Mutex // guards what follows: a timer stops recorders, and handlers may write from goroutines of their own
	status   int        // 0: the head is not written
	verdict  verdict
	res      *response   // what is recorded
	on       bool        // it is recorded
	held     bool        // it is not what its client gets: a 304 about the stored one, or a failure while there is that one
	over     bool        // the handler has returned
	interim  bool        // it was flushed before its end
	live     bool        // others may read it while it is made
	timer    *time.Timer // runs after a flush
	promised int64       // Content-Length, or -1
	written  int64
	why      cacheguard.Reason // it is not stored
	to       audience
	place    *place // of a handler whose response is its client's alone, and which goes on
	outflow

	shown   *response // what those get who read while it is made, without its body; nil: nobody does
	made    making
	tail    http.Header // the trailer, set before made
	readers sync.Cond
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

// afterFlush is how long a response is recorded on after a flush: who flushes has something to say
// now, and perhaps for a long time.
const afterFlush = 50 * time.Millisecond

func newRecorder(u *run, w http.ResponseWriter, cancel context.CancelCauseFunc) *recorder {
	rec := &recorder{run: u, w: w, cancel: cancel, promised: -1, header: http.Header{}}
	rec.idle.L, rec.readers.L, rec.heads = &rec.mu, &rec.mu, rec.room[:0]
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

// WriteHeader passes an informational response on, and with a final one decides what is to become
// of the response.
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
		if rec.on && !rec.held && contradicts(status, rec.status) {
			rec.stop(cacheguard.ReasonIncomplete)
		}
		if rec.to == toClient {
			rec.release()
			rec.heads = append(rec.heads, func() { rec.w.WriteHeader(status) }) // the server logs that it is too late
		}
		return
	case status >= 100 && status < 200 && status != http.StatusSwitchingProtocols:
		if rec.w != nil {
			header := rec.headers()
			rec.heads = append(rec.heads, func() {
				rec.sync(header)
				inform(rec.w, status)
			})
			rec.flows()
		}
		return
	}
	rec.status = status
	if length := rec.header.Get("Content-Length"); length != "" {
		if n, err := strconv.ParseInt(length, 10, 64); err == nil && n >= 0 {
			rec.promised = n
		}
	}
	if (rec.ended() && !rec.isNews(status)) || status == http.StatusSwitchingProtocols {
		rec.stop(cacheguard.ReasonAlone)
		rec.pass(cacheStatus{})
		return
	}
	if rec.instead(status) {
		return
	}
	u := rec.run
	rec.verdict = u.verdict(&u.asked, status, u.cache.selectingOnly(canonical(rec.header), rec.before))
	rec.why = rec.verdict.unstored()
	if rec.verdict.share || rec.verdict.store {
		rec.on = rec.promised <= int64(u.cache.opts.MaxBody)
	}
	if rec.on {
		rec.begin()
	} else {
		if rec.why == 0 {
			rec.why = cacheguard.ReasonTooLarge
		}
		rec.stop(rec.why)
	}
	rec.pass(cacheStatus{})
}

// begin begins to record a response whose head is there.
func (rec *recorder) begin() {
	if rec.header["Date"] == nil { // the server would add one, to what is stored too late
		rec.header["Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
	}
	rec.res = rec.stored(rec.status)
	if rec.why == 0 {
		rec.why = rec.run.unstorable(rec.verdict, rec.res)
		rec.verdict.store = rec.why == 0
	}
	rec.live = rec.verdict.share && !rec.verdict.guessed
	if len(rec.res.vary) > 0 { // who waits for another variant waits in vain
		rec.run.load.Announce(rec.res)
	}
}

// contradicts reports whether a handler says that it has failed, when it has begun to answer with
// another status: by http.Error, for one. Without the cache its client gets what there is of the
// page, with that error at its end.
func contradicts(status, begun int) bool { return status >= 400 && status != begun }

// isNews reports whether a response with this status says that the stored one is still good.
func (rec *recorder) isNews(status int) bool { return status == http.StatusNotModified && rec.run.asks }

// ended reports whether the load doesn't want the response any more.
func (rec *recorder) ended() bool { return rec.run.split.Load() }

// instead says whether this response is the news about another one, which is what the client gets:
// that the stored one is still good, or that there is only a stale one.
func (rec *recorder) instead(status int) bool {
	u := rec.run
	switch {
	case rec.isNews(status):
		rec.on = true
	case u.stale(status):
		rec.on = true
		rec.verdict = u.verdict(&u.asked, status, u.cache.selectingOnly(canonical(rec.header), rec.before))
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
	if vary := u.cache.selecting(all, rec.before); !slices.Equal(vary, own["Vary"]) {
		own = maps.Clone(own)
		own["Vary"] = vary // by which it is selected, whoever says so
	}
	res := &response{
		key: u.key, status: status, age: rec.verdict.age, mustRevalidate: rec.verdict.mustRevalidate,
		header: storedHeader(own, rec.verdict.drop),
	}
	res.vary, _ = varyOf(own)
	res.personal, res.guessed = identified(&u.asked, res.vary), rec.verdict.guessed
	res.selected = selectedBy(res.vary, u.asked.Header)
	return res
}

// pass decides what the head for the client is. It waits until something has to be sent, for more
// may be known by then.
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
	u.client.answered = true
	rec.first = firstHead{status: status, is: s, header: rec.headers(), waits: true}
	if !rec.on {
		rec.drain()
	}
}

// firstHead is what the client is told before the body.
type firstHead struct {
	waits    bool // until something of the response has to be sent
	status   int
	header   http.Header
	is       cacheStatus
	line     string // for Cache-Status, from when it doesn't wait any more
	notWhole bool   // the same: it is a 304
}

// release lets the client have its head. That the response is stored is known only when the handler
// has returned, or if it has promised a length that can be stored.
func (rec *recorder) release() {
	head := &rec.first
	if !head.waits {
		return
	}
	if head.is.reason = rec.why; rec.why == 0 {
		head.is.stored = rec.on && rec.verdict.store && (rec.over || rec.promised >= 0 && !rec.interim)
	}
	head.waits, head.line, head.notWhole = false, rec.run.cache.status(head.is, rec.run.key), rec.to == headOnly
	rec.heads = append(rec.heads, nil)
}

// sendFirst sends the first head, which nobody changes any more.
func (rec *recorder) sendFirst() {
	head := &rec.first
	h := rec.sync(head.header)
	if head.line != "" {
		h["Cache-Status"] = append(slices.Clip(h["Cache-Status"]), head.line)
	}
	if head.notWhole {
		notModified(h)
	}
	rec.w.WriteHeader(head.status)
}

// Write records, or passes on.
func (rec *recorder) Write(p []byte) (int, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if err := rec.keep(len(p), func() { rec.res.body = append(rec.res.body, p...) }); err != nil {
		return 0, err
	}
	if rec.on || rec.to != toClient {
		return len(p), nil
	}
	rec.drain()
	return rec.direct(func() (int, error) { return hands(&rec.run.cache.backlog, rec.w, p, rec.w.Write) })
}

// WriteString is Write.
func (rec *recorder) WriteString(s string) (int, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if err := rec.keep(len(s), func() { rec.res.body = append(rec.res.body, s...) }); err != nil {
		return 0, err
	}
	if rec.on || rec.to != toClient {
		return len(s), nil
	}
	rec.drain()
	return rec.direct(func() (int, error) {
		return hands(&rec.run.cache.backlog, rec.w, s, func(s string) (int, error) { return io.WriteString(rec.w, s) })
	})
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
	case rec.shown == nil && rec.ended():
		rec.stop(cacheguard.ReasonAlone)
	case rec.shown == nil && rec.interim && n > 0 && !rec.live && !rec.run.cache.opts.RecordFlushed:
		rec.stop(cacheguard.ReasonFlushed)
	case rec.written > int64(rec.run.cache.opts.MaxBody):
		rec.stop(cacheguard.ReasonTooLarge)
	default:
		rec.makeRoom(n)
		record()
		rec.out = rec.res.body
		if rec.promised >= 0 && len(rec.out) > buffered { // of what has no length nobody knows if it stays below MaxBody
			rec.announce()
		}
		rec.readers.Broadcast()
		if rec.to == toClient && len(rec.out)-rec.sent > buffered {
			rec.flows()
		}
	}
	if rec.to == discarded {
		return errNobody
	}
	return nil
}

// makeRoom has place for so many bytes more. A large body without a Content-Length doubles, up to
// MaxBody: append would add a quarter each time, and copy it four times. What is too much goes at
// the end.
func (rec *recorder) makeRoom(n int) {
	body := rec.res.body
	switch room := min(2*cap(body), rec.run.cache.opts.MaxBody); {
	case cap(body) == 0 && rec.promised > 0:
		rec.res.body = make([]byte, 0, rec.promised)
	case len(body)+n > cap(body) && cap(body) >= flowChunk && len(body)+n <= room:
		rec.res.body = append(make([]byte, 0, room), body...)
	}
}

// isStream reports whether a response is one of events, which come when they come.
func isStream(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}
