package middleware

import (
	"context"
	"maps"
	"net/http"
	"sync"
)

// outflow sends a recorder's response to its own client. While others may get the response, the
// handler only writes to memory. When there are more bytes than a server buffers anyhow, or when
// the handler flushes, a second goroutine writes these bytes to the client. Only this client can
// block this goroutine. When the handler has returned, or when the response is for this client
// only, the rest is written on the handler's goroutine. The recorder's mutex guards all fields
// except owed, which the backlog's mutex guards.
type outflow struct {
	first   firstHead // the head of the response
	heads   []func()  // headers to be sent before the body, in this order; nil stands for first
	room    [1]func() // the array of heads, enough for most responses
	out     []byte    // the body as far as it is recorded
	sent    int       // how many bytes of out were written to the client
	flushes int       // how often the handler has flushed
	flushed int       // how many of these flushes were passed on to the client
	flowing bool      // a goroutine writes to the client
	broken  bool      // nothing more may be written
	lost    bool      // a write of the handler has failed
	thrown  any       // the value with which the client's writer panicked
	owed    owed      // the recorded body, for all who read it
	taker   *taker    // this client, while the recorder waits for it
	idle    sync.Cond
}

const flowChunk = 64 << 10

// flows starts a goroutine that writes the recorded bytes to the client, if none runs.
func (rec *recorder) flows() {
	if rec.release(); rec.w != nil && !rec.flowing {
		rec.flowing = true
		go func() {
			rec.mu.Lock()
			defer rec.mu.Unlock()
			rec.pour()
		}()
	}
}

// pour writes to the client until all recorded bytes are written. The caller has set flowing.
func (rec *recorder) pour() {
	defer func() {
		rec.flowing = false
		rec.idle.Broadcast()
	}()
	for !rec.broken {
		switch {
		case len(rec.heads) > 0:
			head := rec.heads[0]
			if rec.heads = rec.heads[1:]; head == nil {
				head = rec.sendFirst
			}
			rec.unlocked(head)
		case rec.first.waits: // nothing is sent before the first header
			return
		case rec.to == toClient && rec.sent < len(rec.out):
			p := rec.out[rec.sent:min(rec.sent+flowChunk, len(rec.out))]
			var n int
			var err error
			rec.unlocked(func() { n, err = rec.w.Write(p) })
			rec.sent += n
			rec.taker.got(n)
			rec.broken = rec.broken || err != nil
		case rec.flushed < rec.flushes:
			upTo := rec.flushes
			rec.unlocked(func() { _ = http.NewResponseController(rec.w).Flush() })
			rec.flushed = upTo
		default:
			return
		}
	}
}

// unlocked calls do without holding the mutex, so that the handler can continue. do uses the
// client's writer. If do panics, the handler panics later.
func (rec *recorder) unlocked(do func()) {
	rec.mu.Unlock()
	defer rec.mu.Lock()
	defer func() {
		if v := recover(); v != nil {
			rec.mu.Lock()
			rec.thrown, rec.broken = v, true
			rec.mu.Unlock()
		}
	}()
	do()
}

// settle waits until no goroutine writes to the client.
func (rec *recorder) settle() {
	for rec.flowing {
		rec.idle.Wait()
	}
}

// catchUp writes the rest to the client and waits until it is written. The recorded body stays in
// memory for as long as clients need to read it.
func (rec *recorder) catchUp() {
	if rec.taker == nil && len(rec.out) > bodyBehind {
		b, res := &rec.run.cache.backlog, rec.res
		if rec.made != whole {
			res = nil
		}
		// The client may also block the Flush after the last byte. If it doesn't get the body, it
		// can block nothing else.
		if b.stays(&rec.owed, rec.out, res); rec.w != nil && !rec.broken &&
			(rec.flowing || rec.to == toClient && rec.sent < len(rec.out)) {
			rec.taker = b.takes(&rec.owed, rec.w)
			rec.taker.got(rec.sent)
			defer func() {
				rec.taker.close()
				rec.taker = nil
			}()
		}
	}
	if rec.settle(); rec.w != nil {
		rec.release()
		rec.flowing = true
		rec.pour()
	}
	if !rec.on {
		rec.out, rec.sent = nil, 0 // nobody reads these bytes any more, see follow
	}
}

// drain waits until everything written before has been sent to the client, or can't be sent.
func (rec *recorder) drain() {
	at := rec.place
	// If only the header is left, nothing waits for the client: the server doesn't send it alone.
	if !rec.flowing && len(rec.heads) == 0 && rec.sent == len(rec.out) {
		at = nil
	}
	at.awaits()
	rec.catchUp()
	if at != nil {
		rec.mu.Unlock()
		at.resumes() // resumes may take long
		rec.mu.Lock()
	}
	if v := rec.thrown; v != nil {
		rec.thrown = nil
		panic(v)
	}
}

// announce lets the requests that wait in this process read the response while it is made.
func (rec *recorder) announce() {
	if rec.live && rec.shown == nil {
		shown := *rec.res
		shown.body = nil
		rec.shown = &shown
		rec.run.load.Announce(rec)
	}
}

// follow answers a request that has waited: it sends the response while it is made, as fast as the
// request's client reads. All readers read the same recorded body. If the response is broken off,
// follow aborts the connection.
func (rec *recorder) follow(x *exchange) {
	answer := rec.shown.answer(x.r)
	h := x.w.Header()
	rec.shown.copyHeader(h, answer, rec.shown.age,
		x.cache.status(cacheStatus{fwd: "uri-miss", collapsed: true}, x.key))
	if answer == answerNotModified {
		x.w.WriteHeader(http.StatusNotModified)
		return
	}
	if rec.shown.header["Content-Length"] == nil {
		delete(h, "Content-Length")
	}
	x.w.WriteHeader(rec.shown.status)
	stop := context.AfterFunc(x.r.Context(), func() {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		rec.readers.Broadcast()
	})
	defer stop()
	reader := x.cache.backlog.takes(&rec.owed, x.w)
	defer reader.close()
	for sent, flushed := 0, 0; ; {
		rec.mu.Lock()
		for rec.made == unfinished && sent == len(rec.out) && flushed == rec.flushes &&
			x.r.Context().Err() == nil {
			rec.readers.Wait()
		}
		var p []byte
		flush, made := flushed != rec.flushes, rec.made
		if flushed = rec.flushes; made != cutOff { // otherwise out may be shorter than before
			p = rec.out[sent:]
		}
		rec.mu.Unlock()
		switch {
		case made == cutOff, made == unfinished && x.r.Context().Err() != nil:
			// A time-out in front may end the context while the client is still there.
			panic(http.ErrAbortHandler)
		}
		for len(p) > 0 {
			n, err := x.w.Write(p[:min(flowChunk, len(p))])
			if err != nil {
				return
			}
			sent, p = sent+n, p[n:]
			reader.got(n)
		}
		if made == whole {
			for name, values := range rec.tail {
				h[http.TrailerPrefix+name] = values
			}
			return
		}
		if flush {
			_ = http.NewResponseController(x.w).Flush()
		}
	}
}

// making says whether a response that others read is unfinished, whole or cut off.
type making uint8

const (
	unfinished making = iota
	whole
	cutOff
)

// brokenOff reports whether the response was cut off, so that nobody can get the whole response.
func (rec *recorder) brokenOff() bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.made == cutOff
}

// is tells the readers how the response has ended.
func (rec *recorder) is(made making) {
	if rec.made == unfinished {
		rec.made = made
		rec.readers.Broadcast()
	}
}

// headers returns the handler's header for the client. If the header is sent later, headers returns
// a copy, because the handler may change its header meanwhile.
func (rec *recorder) headers() http.Header {
	if rec.on || rec.status == 0 { // the header is sent later
		return rec.header.Clone()
	}
	return rec.header
}

// sync makes the client's header equal to the handler's header, and returns the client's header.
func (rec *recorder) sync(header http.Header) http.Header {
	h := rec.w.Header()
	for name := range h {
		if _, ok := header[name]; !ok {
			delete(h, name)
		}
	}
	maps.Copy(h, header)
	return h
}

// direct calls write, which writes or flushes to the client. The caller holds the mutex. direct
// releases the mutex during the write, so that requests that follow the response can go on.
func (rec *recorder) direct(write func() (int, error)) (n int, err error) {
	var at *place
	if rec.written > buffered { // otherwise the bytes stay in the server's buffer
		at = rec.place
	}
	rec.flowing = true
	rec.mu.Unlock()
	defer func() {
		rec.mu.Lock()
		rec.flowing = false
		rec.idle.Broadcast()
	}()
	at.awaits()
	defer at.resumes()
	return write()
}
