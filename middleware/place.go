package middleware

import (
	"io"
	"os"
	"sync"
	"time"
)

// place is what a run has among those that may be under way at a time: a slot of MaxLoads, or a
// turn. The run has it until its handler returns or begins to send a stream, but not while the
// handler waits for its client, beyond slowClient: clients decide how long that takes. When the
// client has let the handler go on, it takes a turn again first, or any client could have its
// handler work uncounted by being slow once.
//
// So handlers that work have bounds, and those that wait for their clients have only the server's.
// Nil is no place: nothing is counted. It is safe for concurrent use, for handlers may write from
// goroutines of their own.
type place struct {
	turns *turns

	mu     sync.Mutex // guards what follows
	give   func()     // gives it back; nil: it was
	counts bool       // until the handler has returned, or sends a stream
	waits  int        // for the client, under way
	since  time.Time  // the first of them
	left   time.Duration
	timer  *time.Timer // runs slow; nil: none was needed yet
	armed  bool
}

// slowClient is how long a handler may wait for its client, altogether, and keep its place. Others
// wait that long for it.
const slowClient = 25 * time.Millisecond

// place makes one of a slot or turn that has been taken.
func (t *turns) place(give func()) *place {
	return &place{turns: t, give: give, counts: true, left: slowClient}
}

// awaits is called before the handler waits for its client, and resumes after it. It gives nothing
// back itself: that may take a step of the store, and whoever calls this has locks that readers
// need.
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

// arm has slow run after d, or at once if that is over: not by a timer that is over as it is set,
// for which the race detector's bookkeeping isn't made where time is virtual.
func (p *place) arm(d time.Duration) {
	d = max(d, 1)
	if p.armed = true; p.timer == nil {
		p.timer = time.AfterFunc(d, p.slow)
	} else {
		p.timer.Reset(d)
	}
}

// slow gives the place back if the client takes too long. It doesn't run for each Write, but looks
// again when the client could.
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

// resumes waits for a turn if the place was given back.
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
	left := p.give != nil || !p.counts // another goroutine was faster, or the handler has returned
	if !left && counts {
		p.give = p.turns.give
	}
	p.counts = p.counts && counts
	p.mu.Unlock()
	if left && counts {
		p.turns.release()
	}
}

// leave gives the place back for good: the handler has returned, or has begun what may take any
// time.
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

// copy writes to the client what it reads. While it reads, the handler works, for whatever makes
// what is read is a part of it; but a file is read by the kernel, and sent without being copied.
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

// source is what copy reads.
type source struct {
	io.Reader
	place *place
}

func (s source) Read(b []byte) (int, error) {
	s.place.resumes()
	defer s.place.awaits()
	return s.Reader.Read(b)
}

// upload is the body of a request, for which a handler waits as it does for a client that reads.
type upload struct {
	io.ReadCloser
	place *place
}

func (u upload) Read(b []byte) (int, error) {
	u.place.awaits()
	defer u.place.resumes()
	return u.ReadCloser.Read(b)
}
