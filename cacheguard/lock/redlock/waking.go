package redlock

import "time"

// release identifies a lock that was released on a master: the master's index, and the token that
// the lock had there.
type release struct {
	master int
	token  string
}

// unknown is used in place of the token if a master hasn't replied.
const unknown = "?"

// asks begins a request of the first call in a line, and discards the messages received before.
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

// asked records the result of the request. From now on the call is woken as soon as a majority of
// the masters may be free. calls reports whether messages will show when that is. If no majority
// replied, trouble is the time since which no call in the line has had a reply.
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

// heard records that a token was released on a master.
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

// listens records whether messages of a master arrive. When messages begin or stop arriving, the
// first call of each line sends its request again, because messages may have been missed, and
// because the call may have to poll from now on.
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

// wakeIfFree wakes the first call of the line when a majority may be free.
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
