package middleware

import (
	"context"
	"maps"
	"net/http"
	"sync"
)

// outflow is what a recorder has for its own client. While others may get the response the handler
// writes to memory only, and a goroutine that this client alone can block writes what is there:
// once there is more than a server keeps back anyhow, or when the handler flushes. What is left
// when the handler has returned, or from when the response is for this client alone, is written
// where the handler runs. All fields are guarded by the recorder's mutex.
type outflow struct {
	first   firstHead // the head of the response
	heads   []func()  // to be sent before the body, in this order; nil is the first
	room    [1]func() // for most responses that is all
	out     []byte    // the body as far as it is recorded
	sent    int       // how much of it was written to the client
	flushes int       // how often the handler has flushed
	flushed int       // how much of that the client has
	flowing bool      // somebody writes
	broken  bool      // nothing more is to be written
	thrown  any       // what the client's writer panicked with
	owed    owed      // the body, to all who read it
	taker   *taker    // this client, while it is waited for
	idle    sync.Cond
}

const flowChunk = 64 << 10

// flows has a goroutine write what there is.
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

// pour writes until there is nothing more to be written. flowing is set by its caller.
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
		case rec.first.waits: // nothing goes before it
			return
		case rec.to == toClient && rec.sent < len(rec.out):
			p := rec.out[rec.sent:min(rec.sent+flowChunk, len(rec.out))]
			var n int
			var err error
			rec.unlocked(func() { n, err = rec.w.Write(p) })
			rec.sent += n
			rec.taker.got()
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

// unlocked does something with the client's writer while the handler goes on. A panic in there is
// the handler's.
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

// settle waits until nobody writes.
func (rec *recorder) settle() {
	for rec.flowing {
		rec.idle.Wait()
	}
}

// catchUp writes what is left, and waits for that. What is recorded stays for as long as clients
// take for it.
func (rec *recorder) catchUp() {
	if rec.taker == nil && len(rec.out) > bodyBehind {
		b, res := &rec.run.cache.backlog, rec.res
		if rec.made != whole {
			res = nil
		}
		if b.stays(&rec.owed, rec.out, res); rec.w != nil && rec.sent < len(rec.out) {
			rec.taker = b.takes(&rec.owed, rec.w)
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
		rec.out, rec.sent = nil, 0 // nothing of it is read any more, see follow
	}
}

// drain waits until the client has what was written before, or can't have it.
func (rec *recorder) drain() {
	at := rec.place
	if !rec.flowing && len(rec.heads) == 0 && rec.sent == len(rec.out) { // the head alone doesn't leave the server
		at = nil
	}
	at.awaits()
	rec.catchUp()
	if at != nil {
		rec.mu.Unlock()
		at.resumes() // which may take long
		rec.mu.Lock()
	}
	if v := rec.thrown; v != nil {
		rec.thrown = nil
		panic(v)
	}
}

// announce has those who wait in this process read the response while it is made.
func (rec *recorder) announce() {
	if rec.live && rec.shown == nil {
		shown := *rec.res
		shown.body = nil
		rec.shown = &shown
		rec.run.load.Announce(rec)
	}
}

// follow answers a request that has waited with the response while it is made, as fast as its
// client reads. All readers read the one body that is recorded. It ends the connection if the
// response breaks off.
func (rec *recorder) follow(x *exchange) {
	answer := rec.shown.answer(x.r)
	h := x.w.Header()
	rec.shown.copyHeader(h, answer, rec.shown.age, x.cache.status(cacheStatus{fwd: "uri-miss", collapsed: true}, x.key))
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
		for rec.made == unfinished && sent == len(rec.out) && flushed == rec.flushes && x.r.Context().Err() == nil {
			rec.readers.Wait()
		}
		var p []byte
		flush, made := flushed != rec.flushes, rec.made
		if flushed = rec.flushes; made != cutOff { // else there may be less than there was
			p = rec.out[sent:]
		}
		rec.mu.Unlock()
		switch {
		case made == cutOff, made == unfinished && x.r.Context().Err() != nil: // a time-out in front leaves the client there
			panic(http.ErrAbortHandler)
		}
		for len(p) > 0 {
			n, err := x.w.Write(p[:min(flowChunk, len(p))])
			if err != nil {
				return
			}
			sent, p = sent+n, p[n:]
			reader.got()
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

// making is how far a response is that others read.
type making uint8

const (
	unfinished making = iota
	whole
	cutOff
)

// brokenOff reports whether nobody can have all of the response any more.
func (rec *recorder) brokenOff() bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.made == cutOff
}

// is says to those who read how the response has ended.
func (rec *recorder) is(made making) {
	if rec.made == unfinished {
		rec.made = made
		rec.readers.Broadcast()
	}
}

// headers is for the client's header what the handler's is, as it stands now.
func (rec *recorder) headers() http.Header {
	if rec.on || rec.status == 0 { // it is sent later
		return rec.header.Clone()
	}
	return rec.header
}

// sync makes the client's header what the handler's is, and returns it.
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

// direct writes to the client without the lock, which those who read the response need.
func (rec *recorder) direct(write func() (int, error)) (n int, err error) {
	var at *place
	if rec.written > buffered { // else it stays in the server
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
