package sqllock

import (
	"container/list"
	"sync"
	"time"
)

// lines are the waiting calls of this process, in a line for each name. Only the first call of a
// line sends requests to the database, so thousands of waiting calls cost as much as one.
type lines struct {
	mu     sync.Mutex // guards the fields below, and the contents of lines and places
	byName map[string]*line
}

type line struct {
	places *list.List // of *place, never empty
	since  time.Time  // the time since which the database can't be used; zero: it can be used
	// The time since which this process has handed the lock on among its own calls; zero: it
	// doesn't hand it on.
	handing time.Time
	dropped bool // all calls of the line have failed
}

// place is the place of one waiting call.
type place struct {
	lines *lines
	name  string
	line  *line
	at    *list.Element
	// Closed when the call is the first of its line, or when the line has failed.
	turn chan struct{}
	err  error       // why the line has failed; read it after turn
	wake chan signal // used while the call is the first
}

// signal tells the first call of a line what to do.
type signal int

const (
	askNow   signal = iota
	askLater        // give other processes a chance first
)

// ours is the time for which a process may hand a lock on among its own waiting calls. After this
// time it leaves the lock to other processes. Their waiting calls get no message about this
// release, so this process waits as long as these calls may sleep.
const ours = time.Second

// join takes the last place in the line of a name.
func (ls *lines) join(c *claim) *place {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.add(string(c.row))
}

// If there is a line and the database can be used, joinLine is like join. Otherwise it returns nil,
// and the caller sends its own request.
func (ls *lines) joinLine(c *claim) *place {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln := ls.byName[string(c.row)]; ln == nil || !ln.since.IsZero() {
		return nil
	}
	return ls.add(string(c.row))
}

// The caller of add holds mu.
func (ls *lines) add(name string) *place {
	ln := ls.byName[name]
	if ln == nil {
		ln = &line{places: list.New()}
		ls.byName[name] = ln
	}
	p := &place{
		lines: ls, name: name, line: ln, turn: make(chan struct{}), wake: make(chan signal, 1),
	}
	p.at = ln.places.PushBack(p)
	if ln.places.Len() == 1 {
		close(p.turn)
	}
	return p
}

// first reports whether it is this call's turn.
func (p *place) first() bool {
	select {
	case <-p.turn:
		return true
	default:
		return false
	}
}

// leave gives up the place, and passes the turn to the next call.
func (p *place) leave() {
	ls := p.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if p.line.dropped {
		return
	}
	first := p.line.places.Front() == p.at
	p.line.places.Remove(p.at)
	switch next := p.line.places.Front(); {
	case next == nil:
		delete(ls.byName, p.name)
	case first:
		close(next.Value.(*place).turn)
	}
}

// troubled records that the database could not be used, and reports whether the first call of the
// line has to give up. If it has to, all calls of the line give up, because they share the first
// call's requests.
func (p *place) troubled(most time.Duration, err error) bool {
	ls := p.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := p.line
	if ln.since.IsZero() {
		ln.since = time.Now()
	}
	if time.Since(ln.since) < most {
		return false
	}
	ln.dropped = true
	delete(ls.byName, p.name)
	for e := p.at.Next(); e != nil; e = e.Next() {
		other := e.Value.(*place)
		other.err = err
		close(other.turn)
	}
	return true
}

// fine records that the database has replied.
func (p *place) fine() {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	p.line.since = time.Time{}
}

// released wakes the first call of a line after this process has given the lock back. If a
// notification will wake it, together with the calls of other processes, released does nothing.
func (ls *lines) released(name string, notified bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.byName[name]
	if ln == nil || notified {
		return
	}
	switch now := time.Now(); {
	case ln.handing.IsZero():
		ln.handing = now
		ln.wake(askNow)
	case now.Sub(ln.handing) < ours:
		ln.wake(askNow)
	default:
		ln.handing = time.Time{}
		ln.wake(askLater)
	}
}

// heard wakes the first call of a line after a notification.
func (ls *lines) heard(name string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln := ls.byName[name]; ln != nil {
		ln.wake(askNow)
	}
}

// all wakes the first call of each line.
func (ls *lines) all() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, ln := range ls.byName {
		ln.wake(askNow)
	}
}

// The caller of wake holds lines.mu.
func (ln *line) wake(s signal) {
	select {
	case ln.places.Front().Value.(*place).wake <- s:
	default: // the call was woken already and has not sent its request yet
	}
}
