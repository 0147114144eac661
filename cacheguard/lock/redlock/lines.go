package redlock

import (
	"slices"
	"sync"
	"time"
)

// lines are the Locks of this process that wait, by name. The first of each line asks the masters,
// the others wait for their turn: so one process is one contender, whatever the number of its
// goroutines.
type lines struct {
	mu        sync.Mutex // guards what follows
	all       map[string]*line
	listening []bool // by master: messages arrive
	yields    map[string]yield
	trip      time.Duration // what a question takes, about
}

func (ls *lines) init(masters int) {
	ls.all, ls.listening, ls.yields = make(map[string]*line), make([]bool, masters), make(map[string]yield)
}

// line is of one name. The mutex of lines guards it.
type line struct {
	places  []*place
	trouble time.Time // since when nobody in it has had an answer; zero: the last one had
	crowd   int       // how many processes waited when the lock was last released

	// What its first waits for: that a majority of masters may be free.
	blocked  []string         // by master: the token of who has the lock there, unknown, or "" if nobody has
	released map[release]bool // heard of since it asked, perhaps before the answer that this makes out of date
	heard    []bool           // by master: messages arrived when it asked, so none is missed that makes the answer out of date
}

// place is one Lock's in a line.
type place struct {
	lines *lines
	name  string
	turn  chan struct{} // closed when it is the first
	woken chan struct{} // has a word when a majority may be free
}

// yield is what a process remembers that gave a lock back for which others wait.
type yield struct {
	until   time.Time
	waiting int
}

// yield has this process not ask for a lock until the others have been told of its release: who
// unlocks and locks again would always be quicker.
//
// took is how long the release took: about as long the others take to hear of it and ask.
func (ls *lines) yield(name string, waiting int, took time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	span := yieldSpan + 2*took
	ls.yields[name] = yield{time.Now().Add(span), waiting}
	time.AfterFunc(span, func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		if !time.Now().Before(ls.yields[name].until) {
			delete(ls.yields, name)
		}
	})
}

// join takes a place at the end of a line. alone says that there was no line; then courtesy is for
// how long not to ask.
func (ls *lines) join(name string) (p *place, alone bool, courtesy time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.all[name]
	if l == nil {
		n := len(ls.listening)
		l = &line{blocked: make([]string, n), released: make(map[release]bool), heard: make([]bool, n)}
		ls.all[name] = l
		courtesy, l.crowd = time.Until(ls.yields[name].until), ls.yields[name].waiting
	}
	p = &place{lines: ls, name: name, turn: make(chan struct{}), woken: make(chan struct{}, 1)}
	l.places = append(l.places, p)
	if alone = len(l.places) == 1; alone {
		close(p.turn)
	}
	return p, alone, courtesy
}

// courtesy is for how long the next in a line doesn't ask after the one before it has the lock:
// until those of other processes who wait have asked, one after another. Or this process would
// always be the first to wait again.
func (p *place) courtesy() time.Duration {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	return p.lines.turns(p.lines.all[p.name].crowd)
}

// turns is how long it takes until so many have asked, one after another.
func (p *place) turns(n int) time.Duration {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	return p.lines.turns(n)
}

// turns is called with ls.mu held.
func (ls *lines) turns(n int) time.Duration {
	return time.Duration(n) * max(leastTurn, min(ls.trip, mostTurn))
}

// took notes how long a question took. What is quicker than before counts at once, and what is
// slower for a part: a machine that stood still for a moment is no slow network. It is called with
// ls.mu held.
func (ls *lines) took(took time.Duration) {
	if took < ls.trip {
		ls.trip = took
	} else {
		ls.trip += (took - ls.trip) / 16
	}
}

// leave gives a place up.
func (p *place) leave() {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	l := p.lines.all[p.name]
	first := l.places[0] == p
	l.places = slices.DeleteFunc(l.places, func(other *place) bool { return other == p })
	switch {
	case len(l.places) == 0:
		delete(p.lines.all, p.name)
	case first:
		close(l.places[0].turn)
	}
}
