package redlock

import "time"

// release is what a message says: a token was released on a master.
type release struct {
	master int
	token  string
}

// unknown is in place of a token where a master has said nothing.
const unknown = "?"

// asks begins a question of the first in a line: what was heard before is of no interest.
func (p *place) asks() {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	l := p.lines.all[p.name]
	l.released = make(map[release]bool)
	for i := range l.blocked {
		l.blocked[i] = unknown
	}
	copy(l.heard, p.lines.listening)
	select {
	case <-p.woken:
	default:
	}
}

// asked ends it: the place is woken as soon as a majority of masters may be free. calls says that
// messages will tell of that. trouble is since when nobody in the line has had an answer, if a
// majority gave none.
func (p *place) asked(a attempt) (calls bool, trouble time.Time) {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	l := p.lines.all[p.name]
	p.lines.took(a.took)
	if a.err != nil {
		if l.trouble.IsZero() {
			l.trouble = time.Now()
		}
		return false, l.trouble
	}
	l.trouble = time.Time{}
	for _, a := range a.t.answers {
		switch {
		case a.said == other && !l.released[release{a.master, a.holder}]:
			l.blocked[a.master] = a.holder
		case a.said != nothing:
			l.blocked[a.master] = ""
		}
	}
	l.wakeIfFree()
	tell := 0
	for i, token := range l.blocked {
		if token == "" || token != unknown && l.heard[i] {
			tell++
		}
	}
	return tell >= quorum(len(l.blocked)), time.Time{}
}

// heard takes the word of a master that a token was released there.
func (ls *lines) heard(name string, r release, waiting int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.all[name]
	if l == nil {
		return
	}
	l.released[r], l.crowd = true, waiting
	if l.blocked[r.master] == r.token {
		l.blocked[r.master] = ""
		l.wakeIfFree()
	}
}

// listens notes whether messages of a master arrive. When that changes all ask again: some may have
// been missed, and they may have to ask from time to time now.
func (ls *lines) listens(master int, arrive bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.listening[master] == arrive {
		return
	}
	ls.listening[master] = arrive
	for _, l := range ls.all {
		l.wake()
	}
}

// wakeIfFree wakes the first when a majority may be free.
func (l *line) wakeIfFree() {
	blocked := 0
	for _, token := range l.blocked {
		if token != "" {
			blocked++
		}
	}
	if len(l.blocked)-blocked >= quorum(len(l.blocked)) {
		l.wake()
	}
}

func (l *line) wake() {
	select {
	case l.places[0].woken <- struct{}{}:
	default:
	}
}
