package program

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// referee judges the holders of some names. Holders tell it when they begin, before they act and
// when they end, and it asks them whether they believe that they have the lock, which is what Err
// says. What it is told has the order in which it comes.
//
// Two have the lock at once if both say so when they are asked after both have begun. That proves
// it: a lock whose Err is nil was held all the time since it was acquired, so both were held in the
// moment in which the later one was heard to have begun, whatever was slow, or stood still, on the
// way to the referee. One is enough if a larger fencing token than its own has been seen: then
// another one was given the lock while this one could still count on it. That a process stood still
// excuses neither, because Err looks at the clock.
//
// What it excuses is a holder that looks at Err, stands still, and acts when the next one has
// begun: no lock prevents that. It is what a fencing token is for: what the lock protects refuses
// tokens smaller than the largest it has seen.
type referee struct {
	lease time.Duration
	ask   func(process int, hold, question int64)

	mu        sync.Mutex // guards the rest
	tally     lockTally
	names     map[string]*judged
	holds     map[holdOf]*holding
	doubts    map[int64]*doubt
	questions int64
	stood     map[int]time.Time // until when a process last stood still
	emptied   []time.Time       // when masters have forgotten what they had
}

// lockTally is what a run showed.
type lockTally struct {
	Locker       string `json:"locker"`
	Acquisitions int    `json:"acquisitions"`
	Handovers    int    `json:"handovers"`   // acquisitions after one of another process
	Stops        int    `json:"stops"`       // of processes
	Masters      int    `json:"masters"`     // that were stopped, or killed and begun again
	Emptied      int    `json:"emptied"`     // of those, sooner after their end than the documentation wants it
	Lost         int    `json:"lost"`        // acquisitions whose holder was told that it had lost the lock
	Overlaps     int    `json:"overlaps"`    // two that believed to have one lock
	Excused      int    `json:"excused"`     // the same after a master had forgotten
	LateStopped  int    `json:"lateStopped"` // acted after the next one had begun, and had been stopped since it looked
	LateRunning  int    `json:"lateRunning"` // the same, but was not stopped: it had lost the lock otherwise, or was slow
	Refused      int    `json:"refused"`     // of those, by their tokens
	Deaths       int    `json:"deaths"`      // of processes, by themselves
	Death        string `json:"death,omitempty"`
	Troubles     int    `json:"troubles"` // errors of Lock, TryLock and Unlock other than ErrHeld and ErrLost
	Trouble      string `json:"trouble,omitempty"`
	First        string `json:"first,omitempty"` // overlap
}

// judged is what the referee knows of a name.
type judged struct {
	largest int64 // token
	newest  *holding
	open    []*holding
}

// holdOf names a hold.
type holdOf struct {
	process int
	hold    int64
}

type holding struct {
	holdOf
	name  string
	token int64
	began time.Time
}

// doubt is whether all of these believe to have the lock.
type doubt struct {
	of      []*holding
	asked   time.Time
	left    int // answers
	denied  bool
	largest int64 // token that had been seen
}

func newReferee(lease time.Duration, ask func(process int, hold, question int64)) *referee {
	return &referee{
		lease: lease, ask: ask, names: make(map[string]*judged), holds: make(map[holdOf]*holding),
		doubts: make(map[int64]*doubt), stood: make(map[int]time.Time),
	}
}

// begins is told that a holder has the lock, and goes on with the resource that the lock protects.
func (r *referee) begins(at holdOf, name string, token int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.names[name]
	if n == nil {
		n = &judged{}
		r.names[name] = n
	}
	h := &holding{holdOf: at, name: name, token: token, began: time.Now()}
	r.tally.Acquisitions++
	if n.newest != nil && n.newest.process != at.process {
		r.tally.Handovers++
	}
	r.holds[at] = h
	if token != 0 && token <= n.largest {
		r.late(h, n)
		r.doubt(n, h)
	} else {
		for _, other := range n.open {
			r.doubt(n, other, h)
		}
		n.largest, n.newest = token, h
	}
	n.open = append(n.open, h)
}

// doubt asks holders whether they all believe to have the lock.
func (r *referee) doubt(n *judged, of ...*holding) {
	r.questions++
	d := &doubt{of: of, asked: time.Now(), left: len(of), largest: n.largest}
	r.doubts[r.questions] = d
	for _, h := range of {
		r.ask(h.process, h.hold, r.questions)
	}
}

// answers is told whether a holder believes to have the lock, in answer to a question.
func (r *referee) answers(question int64, believes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.doubts[question]
	if d == nil {
		return
	}
	d.left--
	d.denied = d.denied || !believes
	if d.left > 0 {
		return
	}
	delete(r.doubts, question)
	switch {
	case d.denied:
	case r.forgotten(d):
		r.tally.Excused++
	default:
		r.tally.Overlaps++
		if r.tally.First == "" {
			r.tally.First = d.String()
		}
	}
}

// forgotten says whether a master has forgotten so lately that one of them may still believe in
// what was there: for a lease.
func (r *referee) forgotten(d *doubt) bool {
	return slices.ContainsFunc(r.emptied, func(at time.Time) bool {
		return d.asked.Before(at.Add(r.lease))
	})
}

func (d *doubt) String() string {
	if len(d.of) == 1 {
		return fmt.Sprintf("process %d believed in the lock of %s with the token %d after %d had been seen", d.of[0].process, d.of[0].name, d.of[0].token, d.largest)
	}
	return fmt.Sprintf("processes %d and %d believed in the lock of %s, with the tokens %d and %d", d.of[0].process, d.of[1].process, d.of[0].name, d.of[0].token, d.of[1].token)
}

// acts is told that a holder, which has looked at Err at some time, does something to what the lock
// protects.
func (r *referee) acts(at holdOf) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.holds[at]
	if h == nil {
		return
	}
	n := r.names[h.name]
	if h.token != 0 && h.token < n.largest || h.token == 0 && n.newest != h {
		r.late(h, n)
	}
}

// late counts what a holder does when the next one has begun. It was acquired a lease at most
// before it was heard to have begun.
func (r *referee) late(h *holding, n *judged) {
	if r.stood[h.process].After(h.began.Add(-r.lease)) {
		r.tally.LateStopped++
	} else {
		r.tally.LateRunning++
	}
	if h.token != 0 && h.token <= n.largest {
		r.tally.Refused++
	}
}

// ends is told that a holder doesn't count on the lock any more.
func (r *referee) ends(at holdOf) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(at)
}

func (r *referee) end(at holdOf) {
	h := r.holds[at]
	if h == nil {
		return
	}
	delete(r.holds, at)
	n := r.names[h.name]
	n.open = slices.DeleteFunc(n.open, func(other *holding) bool { return other == h })
}

// stands is told that a process is about to be stopped, and goesOn that it is about to be
// continued.
func (r *referee) stands(process int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stood[process] = time.Now().Add(time.Hour)
	r.tally.Stops++
}

func (r *referee) goesOn(process int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stood[process] = time.Now()
}

// dies is told that a process has ended by itself. It answers nothing any more.
func (r *referee) dies(process int, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.Deaths++
	if r.tally.Death == "" {
		r.tally.Death = why
	}
	for at := range r.holds {
		if at.process == process {
			r.end(at)
		}
	}
	for question, d := range r.doubts {
		if slices.ContainsFunc(d.of, func(h *holding) bool { return h.process == process }) {
			delete(r.doubts, question)
		}
	}
}

// forgets is told that a master has lost all that it had, and is there again at once.
func (r *referee) forgets() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.emptied = append(r.emptied, time.Now())
	r.tally.Emptied++
}

// counts changes the tally.
func (r *referee) counts(change func(t *lockTally)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.tally)
}
