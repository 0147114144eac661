package middleware

import (
	"io"
	"os"
	"sync"
	"time"
)

// place is a slot of MaxLoads, or a turn, that a run occupies while a limit counts it. The run has
// its place until its handler returns or begins to send a stream. If the handler's waits for its
// client add up to more than slowClient, the run gives its place back, because the client decides
// how long these waits are. Before the handler continues, it takes a turn. Otherwise, if a client
// was slow once, its handler would work uncounted from then on.
//
// So the number of handlers that work is limited. The number of handlers that wait for their
// clients is limited only by the server. A nil place isn't counted. A place is safe for concurrent
// use, because handlers may write from goroutines of their own.
type place struct {
	turns *turns

	mu     sync.Mutex // guards the fields below
	give   func()     // gives the place back; nil: it has been given back
	counts bool       // true until the handler returns, sends a stream or goes on without a turn
	waits  int        // how many waits for the client are under way
	since  time.Time  // when the first of these waits began
	left   time.Duration
	timer  *time.Timer // calls the method slow; nil: no timer was needed yet
	armed  bool
}

// slowClient is how long a handler may wait for its client altogether and keep its place. Other
// runs may have to wait that long for the place.
const slowClient = 25 * time.Millisecond

// place makes a place from a slot or turn that has been taken. give releases it.
func (t *turns) place(give func()) *place {
	return &place{turns: t, give: give, counts: true, left: slowClient}
}

// awaits records that the handler begins to wait for its client. Call awaits before the wait, and
// resumes after it. awaits doesn't give the place back itself, because this may need a call to the
// store, and the caller holds locks that readers need.
func (p *place) awaits() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits++
	if p.waits == 1 {
		p.since = time.Now()
	}
	if p.give != nil && !p.armed {
		p.arm(p.left)
	}
}

// arm makes slow run after d, or as soon as possible if d is zero or negative. It never sets a
// timer to zero or less, because with virtual time the race detector doesn't track such a timer
// correctly.
func (p *place) arm(d time.Duration) {
	d = max(d, 1)
	if p.armed = true; p.timer == nil {
		p.timer = time.AfterFunc(d, p.slow)
	} else {
		p.timer.Reset(d)
	}
}

// slow gives the place back if the client takes too long. If the time of slowClient isn't over yet,
// slow runs again at the earliest time at which it could be over. So not each Write needs a timer.
func (p *place) slow() {
	p.mu.Lock()
	p.armed = false
	var give func()
	if p.waits > 0 && p.give != nil {
		if left := p.left - time.Since(p.since); left > 0 {
			p.arm(left)
		} else {
			give, p.give = p.give, nil
		}
	}
	p.mu.Unlock()
	if give != nil {
		give()
	}
}

// resumes records that the handler can continue. If the place was given back, resumes waits for a
// turn.
func (p *place) resumes() {
	if p == nil {
		return
	}
	p.mu.Lock()
	if p.waits--; p.waits == 0 {
		p.left -= time.Since(p.since)
	}
	lost := p.counts && p.give == nil
	p.mu.Unlock()
	if !lost {
		return
	}
	counts := p.turns.again()
	p.mu.Lock()
	// Another goroutine has taken a turn, or the handler has returned.
	left := p.give != nil || !p.counts
	if !left && counts {
		p.give = p.turns.give
	}
	p.counts = p.counts && counts
	p.mu.Unlock()
	if left && counts {
		p.turns.release()
	}
}

// leave gives the place back for good. Call leave when the handler has returned, or has begun to
// send a response that may take any time.
func (p *place) leave() {
	if p == nil {
		return
	}
	p.mu.Lock()
	give := p.give
	p.give, p.counts = nil, false
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	if give != nil {
		give()
	}
}

// copy copies from a reader to the client. The handler counts as working while copy reads, because
// the code that produces the data is part of the handler. A file is an exception: the kernel reads
// it and sends it without copying.
func (p *place) copy(to io.Writer, from io.Reader) (int64, error) {
	if p != nil && !isFile(from) {
		from = source{from, p}
	}
	p.awaits()
	defer p.resumes()
	return io.Copy(to, from)
}

func isFile(r io.Reader) bool {
	if part, ok := r.(*io.LimitedReader); ok {
		r = part.R
	}
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// source is the reader that copy reads from. While it reads, the handler has its place.
type source struct {
	io.Reader
	place *place
}

func (s source) Read(b []byte) (int, error) {
	s.place.resumes()
	defer s.place.awaits()
	return s.Reader.Read(b)
}

// upload is the body of a request. While a handler waits for the body, it waits for its client, as
// it does for a client that reads slowly.
type upload struct {
	io.ReadCloser
	place *place
}

func (u upload) Read(b []byte) (int, error) {
	u.place.awaits()
	defer u.place.resumes()
	return u.ReadCloser.Read(b)
}
