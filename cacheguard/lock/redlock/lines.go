package redlock

import (
	"slices"
	"sync"
	"time"
)

// lines are the waiting Lock calls of this process, by name. The first call of each line sends
// requests to the masters, and the others wait for their turn. So each process counts as one
// contender, however many of its goroutines wait.
type lines struct {
	mu        sync.Mutex // guards the fields below
	all       map[string]*line
	listening []bool // by master: whether messages arrive
	yields    map[string]yield
	trip      time.Duration // the approximate time that a request takes
}

func (ls *lines) init(masters int) {
	ls.all, ls.listening, ls.yields = make(map[string]*line), make([]bool, masters),
		make(map[string]yield)
}

// line is the line of calls for one name. The mutex of lines guards it.
type line struct {
	places []*place
	// The time since which no call in the line has had a reply; zero: the last request had a reply.
	trouble time.Time
	crowd   int // the number of processes that waited when the lock was last released

	// The first call of the line waits until a majority of the masters may be free. The fields
	// below show when.
	//
	// By master: the token that has the lock there, unknown, or "" if nobody has it.
	blocked []string
	// The releases that messages have reported since the request was sent; a message may be newer
	// than a reply that comes after it.
	released map[release]bool
	// By master: whether messages arrived when the request was sent; if not, the reply may be out
	// of date without a message.
	heard []bool
}

// place is the place of one Lock call in a line.
type place struct {
	lines *lines
	name  string
	turn  chan struct{} // closed when the call is the first of its line
	woken chan struct{} // receives a value when a majority may be free
}

// yield records that this process has given back a lock for which other processes wait. It is kept
// for a short time.
type yield struct {
	until   time.Time
	waiting int
}

// yield makes this process wait before it requests a lock again, until the message about its
// release has reached the other processes. Without this pause a process that unlocks and locks
// again would always be quicker than the others.
//
// took is the time that the release took. The other processes take about the same time to receive
// the message and send their requests.
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

// join takes a place at the end of a line. alone reports that there was no line. In that case
// courtesy is the time to wait before the first request.
func (ls *lines) join(name string) (p *place, alone bool, courtesy time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.all[name]
	if l == nil {
		n := len(ls.listening)
		l = &line{
			blocked: make([]string, n), released: make(map[release]bool), heard: make([]bool, n),
		}
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

// courtesy returns the time that the next call in a line waits before it sends a request, after the
// previous call has got the lock. In that time the waiting calls of other processes send their
// requests, one after another. Without this pause, this process would always be the first to wait
// again.
func (p *place) courtesy() time.Duration {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	return p.lines.turns(p.lines.all[p.name].crowd)
}

// turns returns the time until n processes have sent their requests, one after another.
func (p *place) turns(n int) time.Duration {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	return p.lines.turns(n)
}

// The caller of turns holds ls.mu.
func (ls *lines) turns(n int) time.Duration {
	return time.Duration(n) * max(leastTurn, min(ls.trip, mostTurn))
}

// took records the time that a request took. A shorter time replaces the average at once. A longer
// time changes the average only in part, because the machine may have been stopped for a moment,
// which says nothing about the network. The caller holds ls.mu.
func (ls *lines) took(took time.Duration) {
	if took < ls.trip {
		ls.trip = took
	} else {
		ls.trip += (took - ls.trip) / 16
	}
}

// leave gives up a place in a line.
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
