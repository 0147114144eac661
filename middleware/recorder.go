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

// recorder is the ResponseWriter of a handler whose response other requests may get. As long as
// they may get it, the handler writes to memory. From there the response is sent to the handler's
// own client, if it has one, and to the waiting requests. If the response turns out to be for the
// handler's own client only, the handler writes directly to that client.
//
// The handler has a header map of its own, which begins as a copy of the client's header. The
// fields in this copy are for that client only. So they are not stored unless the handler changes
// them. Vary is an exception.
type recorder struct {
	run    *run
	w      http.ResponseWriter // the client's writer; nil: there is no client
	cancel context.CancelCauseFunc
	header http.Header
	before http.Header // the client's header before the handler was called

	mu      sync.Mutex // guards the fields below: timers and goroutines of handlers use them, too
	status  int        // 0: the header is not written
	verdict verdict
	res     *response // the recorded response
	on      bool      // the response is being recorded
	// The client gets the stored response instead, because this one is a failure, or a 304 that
	// confirms the stored one.
	held     bool
	over     bool        // the handler has returned
	interim  bool        // the response was flushed before its end
	live     bool        // other requests may read it while it is made
	timer    *time.Timer // runs after a flush
	promised int64       // Content-Length, or -1
	written  int64
	why      cacheguard.Reason // why it is not stored
	to       audience
	refused  bool   // a Write has failed, because nobody reads the body: see unread
	place    *place // set if the handler continues for its own client only
	outflow

	// The response, without its body, for clients that read it while it is made; nil: none does.
	shown   *response
	made    making
	tail    http.Header // the trailer, set before made
	readers sync.Cond
}

// audience says who gets the bytes that the handler writes.
type audience uint8

const (
	toClient  audience = iota
	headOnly           // the client gets a 304
	toNobody           // the client gets another response
	goneAway           // there is no client
	discarded          // there is no client, and nobody else gets it either
)

// afterFlush is how long a response that is not live is still recorded after its first flush. The
// time is short: a handler that flushes wants its client to get bytes now, and may continue for a
// long time.
const afterFlush = 50 * time.Millisecond

// newRecorder returns the recorder for a client, or for nobody if w is nil. front is the header
// that layers in front have set for the client whose request the handler gets. They may have chosen
// the response for this client, so their Vary counts even if the client doesn't wait.
func newRecorder(
	u *run, w http.ResponseWriter, front http.Header, cancel context.CancelCauseFunc,
) *recorder {
	rec := &recorder{run: u, w: w, cancel: cancel, promised: -1, header: http.Header{}}
	rec.idle.L, rec.readers.L, rec.heads = &rec.mu, &rec.mu, rec.room[:0]
	if w == nil {
		rec.to = goneAway
	}
	if len(front) > 0 {
		rec.header = front.Clone()
		rec.before = u.cache.inFront(rec.header)
	}
	return rec
}

// Header is the handler's own map.
func (rec *recorder) Header() http.Header { return rec.header }

// WriteHeader passes on an informational response. With a final status it decides whether the
// response is recorded.
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
			// The server then logs that the call comes too late.
			rec.heads = append(rec.heads, func() { rec.w.WriteHeader(status) })
		}
		return
	case status >= 100 && status < 200 && status != http.StatusSwitchingProtocols:
		if rec.w != nil {
			header := rec.headers()
			rec.heads = append(rec.heads, func() {
				rec.sync(header)
				inform(rec.w, status)
				rec.sync(rec.before) // the client may get another response
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
	rec.verdict = u.verdict(&u.asked, status,
		u.cache.selectingOnly(canonical(rec.header), rec.before))
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

// begin begins to record a response when its header has been written.
func (rec *recorder) begin() {
	if rec.header["Date"] == nil { // the server would add one, but too late for the stored response
		rec.header["Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
	}
	rec.res = rec.stored(rec.status)
	if rec.why == 0 {
		rec.why = rec.run.unstorable(rec.verdict, rec.res)
		rec.verdict.store = rec.why == 0
	}
	rec.live = rec.verdict.share && !rec.verdict.guessed
	if len(rec.res.vary) > 0 { // requests for other variants need not wait
		rec.run.load.Announce(rec.res)
	}
}

// contradicts reports whether a handler writes the status of an error after it has begun to answer
// with another status, for example by http.Error. Without the cache its client would get the
// beginning of the page with the error at its end.
func contradicts(status, begun int) bool { return status >= 400 && status != begun }

// isNews reports whether a response with this status says that the stored response is still good.
func (rec *recorder) isNews(status int) bool {
	return status == http.StatusNotModified && rec.run.asks
}

// ended reports whether the load no longer wants the response.
func (rec *recorder) ended() bool { return rec.run.split.Load() }

// instead reports whether the client gets the stored response instead of the handler's response.
// This happens if the handler's response says that the stored response is still good. It also
// happens if the handler's response is a failure and a stale response may be served.
func (rec *recorder) instead(status int) bool {
	u := rec.run
	switch {
	case rec.isNews(status):
		rec.on = true
	case u.stale(status):
		rec.on = true
		rec.verdict = u.verdict(&u.asked, status,
			u.cache.selectingOnly(canonical(rec.header), rec.before))
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

// stored returns the response, without its body, in the form in which others may get it.
func (rec *recorder) stored(status int) *response {
	u := rec.run
	all := canonical(rec.header)
	own := ownFields(all, rec.before)
	if vary := u.cache.selecting(all, rec.before); !slices.Equal(vary, own["Vary"]) {
		own = maps.Clone(own)
		// The response is selected by this Vary, no matter which layer has set it.
		own["Vary"] = vary
	}
	res := &response{
		key: u.key, status: status, age: rec.verdict.age,
		mustRevalidate: rec.verdict.mustRevalidate,
		header:         storedHeader(own, rec.verdict.drop),
	}
	res.vary, _ = varyOf(own)
	res.personal, res.guessed = identified(&u.asked, res.vary), rec.verdict.guessed
	res.selected = selectedBy(res.vary, u.asked.Header)
	return res
}

// pass decides the header for the client. The header is sent only when a part of the response has
// to be sent, because more may be known about the response by then.
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

// firstHead is the header that is sent to the client before the body.
type firstHead struct {
	waits    bool // no part of the response has to be sent yet
	status   int
	header   http.Header
	is       cacheStatus
	line     string // the line for Cache-Status; set when the header needn't wait any more
	notWhole bool   // the response is a 304; set together with line
}

// release lets the header be sent to the client. It also makes Cache-Status, which says whether the
// response is stored. The cache knows that it is stored when the handler has returned, and earlier
// only if the handler has set a Content-Length of at most MaxBody. So Cache-Status is made as late
// as possible.
func (rec *recorder) release() {
	head := &rec.first
	if !head.waits {
		return
	}
	if head.is.reason = rec.why; rec.why == 0 {
		head.is.stored = rec.on && rec.verdict.store &&
			(rec.over || rec.promised >= 0 && !rec.interim)
	}
	head.waits, head.line, head.notWhole = false, rec.run.cache.status(head.is, rec.run.key),
		rec.to == headOnly
	rec.heads = append(rec.heads, nil)
}

// sendFirst sends the first header. After that nobody may change this header.
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

// Write records p, or passes it on to the client.
func (rec *recorder) Write(p []byte) (int, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if err := rec.keep(len(p), func() { rec.res.body = append(rec.res.body, p...) }); err != nil {
		return 0, err
	}
	if rec.on || rec.to != toClient {
		return len(p), nil
	}
	return passesOn(rec, p, rec.w.Write)
}

// WriteString is Write for a string.
func (rec *recorder) WriteString(s string) (int, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if err := rec.keep(len(s), func() { rec.res.body = append(rec.res.body, s...) }); err != nil {
		return 0, err
	}
	if rec.on || rec.to != toClient {
		return len(s), nil
	}
	return passesOn(rec, s, func(s string) (int, error) { return io.WriteString(rec.w, s) })
}

// passesOn writes to the client what the handler writes, after what was recorded before.
func passesOn[T string | []byte](
	rec *recorder, p T, write func(T) (int, error),
) (int, error) {
	rec.drain()
	lost := rec.broken || rec.lost
	n, err := rec.direct(func() (int, error) {
		return hands(&rec.run.cache.backlog, lost, rec.w, p, write)
	})
	rec.lost = lost || err != nil
	return n, err
}

// keep records n bytes, or ends the recording if the response can't be stored.
func (rec *recorder) keep(n int, record func()) error {
	if rec.over { // other clients may have the response already
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
	case rec.held && rec.written > int64(rec.run.cache.opts.MaxBody):
		// A failure that is too large: only its status is needed.
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
		// Without a length nobody knows whether it stays below MaxBody.
		if rec.promised >= 0 && len(rec.out) > buffered {
			rec.announce()
		}
		rec.readers.Broadcast()
		if rec.to == toClient && len(rec.out)-rec.sent > buffered {
			rec.flows()
		}
	}
	switch {
	case rec.to == discarded:
		return errNobody
	case rec.unread():
		rec.refused = true
		rec.cancel(http.ErrBodyNotAllowed)
		return http.ErrBodyNotAllowed
	}
	return nil
}

// unread reports whether the handler should stop writing, because its client gets a 304 and nobody
// else gets the body. A body of up to MaxBody may be written nevertheless while the client is
// there, because many handlers treat an error of Write as a failure.
func (rec *recorder) unread() bool {
	return !rec.on && rec.to == headOnly &&
		(max(rec.written, rec.promised) > int64(rec.run.cache.opts.MaxBody) ||
			rec.run.asked.Context().Err() != nil)
}

// hasRefused reports whether a Write has failed because nobody reads the body.
func (rec *recorder) hasRefused() bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.refused
}

// makeRoom makes room for n more bytes. The buffer of a large body without a Content-Length is
// doubled, up to MaxBody, because append would add only a quarter each time and copy the body four
// times. Unused room is freed at the end.
func (rec *recorder) makeRoom(n int) {
	body := rec.res.body
	switch room := min(2*cap(body), rec.run.cache.opts.MaxBody); {
	case cap(body) == 0 && rec.promised > 0:
		// A failure that is held back may promise more than MaxBody.
		rec.res.body = make([]byte, 0, min(rec.promised, int64(rec.run.cache.opts.MaxBody)))
	case len(body)+n > cap(body) && cap(body) >= flowChunk && len(body)+n <= room:
		rec.res.body = append(make([]byte, 0, room), body...)
	}
}

// isStream reports whether a response is an event stream, which may send something at any time.
func isStream(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}
