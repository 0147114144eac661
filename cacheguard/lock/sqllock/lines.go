package sqllock

import (
	"container/list"
	"sync"
	"time"
)

// lines are the waiters of this process, in a line for each name. Only the first of a line asks the
// database, so that thousands of waiters cost as much as one.
type lines struct {
	mu     sync.Mutex // guards what follows, and what is in lines and places
	byName map[string]*line
}

type line struct {
	places  *list.List // of *place, never empty
	since   time.Time  // since when there has been trouble; zero: there is none
	handing time.Time  // since when the lock goes from one to the next in this process; zero: it doesn't
	dropped bool       // it has failed as a whole
}

// place is that of one waiter.
type place struct {
	lines *lines
	name  string
	line  *line
	at    *list.Element
	turn  chan struct{} // closed when it is the first, or when the line has failed
	err   error         // why it has failed; read it after turn
	wake  chan signal   // for the first
}

// signal tells the first of a line what to do.
type signal int

const (
	askNow   signal = iota
	askLater        // others have a chance first
)

// ours is how long a process may hand a lock on among its own waiters. Then it leaves it to those
// of other processes, who can't be told of it, for as long as these may sleep.
const ours = time.Second

// join takes the last place in the line of a name.
func (ls *lines) join(c *claim) *place {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.add(string(c.row))
}

// joinLine is join if there is a line and it is not in trouble; otherwise it returns nil, for the
// caller to ask for itself.
func (ls *lines) joinLine(c *claim) *place {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln := ls.byName[string(c.row)]; ln == nil || !ln.since.IsZero() {
		return nil
	}
	return ls.add(string(c.row))
}

// add needs mu.
func (ls *lines) add(name string) *place {
	ln := ls.byName[name]
	if ln == nil {
		ln = &line{places: list.New()}
		ls.byName[name] = ln
	}
	p := &place{lines: ls, name: name, line: ln, turn: make(chan struct{}), wake: make(chan signal, 1)}
	p.at = ln.places.PushBack(p)
	if ln.places.Len() == 1 {
		close(p.turn)
	}
	return p
}

// first reports whether it is this one's turn.
func (p *place) first() bool {
	select {
	case <-p.turn:
		return true
	default:
		return false
	}
}

// leave gives the place up, and the turn to the next.
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

// troubled notes that the database could not be asked, and reports whether the first is to give up.
// Then all do, for none of them has heard more of the database.
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

// fine notes that the database has answered.
func (p *place) fine() {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	p.line.since = time.Time{}
}

// released wakes the first of a line because this process has given the lock back, unless it will
// be notified, together with those of other processes.
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

// heard wakes the first of a line because of a notification.
func (ls *lines) heard(name string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln := ls.byName[name]; ln != nil {
		ln.wake(askNow)
	}
}

// all wakes the first of each line.
func (ls *lines) all() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, ln := range ls.byName {
		ln.wake(askNow)
	}
}

// wake needs lines.mu.
func (ln *line) wake(s signal) {
	select {
	case ln.places.Front().Value.(*place).wake <- s:
	default: // it has been woken and has not asked yet
	}
}
