package program

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/internal/wallclock"
)

// referee judges the holders of some names. Holders report to it when they begin, before they act
// and when they end. It asks them whether they believe that they have the lock, that is, whether
// Err is nil. The order of reports is the order in which they arrive.
//
// Two holders have the lock at the same time if both say so when the referee asks them after both
// have begun. This is a proof: if Err of a lock is nil, the lock was held all the time since it was
// acquired. So both locks were held when the report of the later one arrived, however slow or
// stopped the reports were on their way to the referee. One such answer is enough if a larger
// fencing token has been seen: in this case another holder was given the lock while this one could
// still rely on it. A process that was stopped must not believe in a lock that it has lost either,
// because Err looks at the clock.
//
// The referee excuses a holder that checks Err, is stopped, and acts when the next hold has begun,
// because no lock prevents that. Fencing tokens are made for this case: the protected resource
// refuses tokens smaller than the largest it has seen.
type referee struct {
	lease time.Duration
	ask   func(process int, hold, question int64)
	// How far the machine's clock was set forward since a time.
	clockSet func(since time.Time) time.Duration

	handed chan struct{} // closed at the first hand-over

	mu        sync.Mutex // guards the fields below
	tally     lockTally
	names     map[string]*judged
	holds     map[holdOf]*holding
	doubts    map[int64]*doubt
	questions int64
	stood     map[int]time.Time // the time until which a process was last stopped
	emptied   []time.Time       // the times at which masters have lost their data
}

// lockTally is the result of a run.
type lockTally struct {
	Locker       string `json:"locker"`
	Acquisitions int    `json:"acquisitions"`
	Handovers    int    `json:"handovers"` // acquisitions after an acquisition of another process
	Stops        int    `json:"stops"`     // the number of stops of processes
	// The number of times that a master was stopped, or was killed and restarted.
	Masters int `json:"masters"`
	// The number of restarts of masters without data, sooner than the documentation demands.
	Emptied int `json:"emptied"`
	// The number of acquisitions whose holder learned that it had lost the lock.
	Lost int `json:"lost"`
	// The number of times that two holders believed at the same time to have the same lock.
	Overlaps int `json:"overlaps"`
	// The number of these times after a master had lost its data, or while the machine's clock was
	// set forward, which Overlaps excludes.
	Excused int `json:"excused"`
	// The number of times that a holder acted after the next hold had begun, and had been stopped
	// after its check of Err.
	LateStopped int `json:"lateStopped"`
	// The number of times that a holder acted after the next hold had begun without such a stop: it
	// had lost the lock in another way, or was slow.
	LateRunning int `json:"lateRunning"`
	// The number of late actions that were refused because of their tokens.
	Refused int    `json:"refused"`
	Deaths  int    `json:"deaths"` // the number of processes that ended by themselves
	Death   string `json:"death,omitempty"`
	// The number of errors of Lock, TryLock and Unlock other than ErrHeld and ErrLost.
	Troubles int    `json:"troubles"`
	Trouble  string `json:"trouble,omitempty"`
	First    string `json:"first,omitempty"` // overlap
}

// judged is what the referee knows of a name.
type judged struct {
	largest int64 // token
	newest  *holding
	open    []*holding
}

// holdOf identifies a hold.
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

// doubt is an open question: do all these holders believe that they have the lock?
type doubt struct {
	of      []*holding
	asked   time.Time
	left    int // answers
	denied  bool
	largest int64 // the largest token that had been seen
}

func newReferee(lease time.Duration, ask func(process int, hold, question int64)) *referee {
	return &referee{
		lease: lease, ask: ask, clockSet: wallclock.SetSince, handed: make(chan struct{}),
		names: make(map[string]*judged), holds: make(map[holdOf]*holding),
		doubts: make(map[int64]*doubt), stood: make(map[int]time.Time),
	}
}

// begins records that a holder has the lock and starts to use the protected resource.
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
		if r.tally.Handovers++; r.tally.Handovers == 1 {
			close(r.handed)
		}
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

// doubt asks holders whether all of them believe that they have the lock.
func (r *referee) doubt(n *judged, of ...*holding) {
	r.questions++
	d := &doubt{of: of, asked: time.Now(), left: len(of), largest: n.largest}
	r.doubts[r.questions] = d
	for _, h := range of {
		r.ask(h.process, h.hold, r.questions)
	}
}

// answers records the answer to a question: whether a holder believes that it has the lock.
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
	case r.forgotten(d), r.shortened(d):
		r.tally.Excused++
	default:
		r.tally.Overlaps++
		if r.tally.First == "" {
			r.tally.First = d.String()
		}
	}
}

// forgotten reports whether a master has lost its data within the last lease. In this time one of
// the holders may still believe in a lock that the master has lost.
func (r *referee) forgotten(d *doubt) bool {
	return slices.ContainsFunc(r.emptied, func(at time.Time) bool {
		return d.asked.Before(at.Add(r.lease))
	})
}

// shortened reports whether the machine's clock was set forward since the first of the holders got
// its lock, by more than lockers allow for. Locks that end by this clock then end earlier, and
// their holders can't know.
func (r *referee) shortened(d *doubt) bool {
	return len(d.of) > 1 && r.clockSet(d.of[0].began) > max(time.Millisecond, r.lease/100)
}

func (d *doubt) String() string {
	if len(d.of) == 1 {
		return fmt.Sprintf(
			"process %d believed in the lock of %s with the token %d after %d had been seen",
			d.of[0].process, d.of[0].name, d.of[0].token, d.largest)
	}
	return fmt.Sprintf("processes %d and %d believed in the lock of %s, with the tokens %d and %d",
		d.of[0].process, d.of[1].process, d.of[0].name, d.of[0].token, d.of[1].token)
}

// acts records that a holder, which has checked Err at some time, acts on the protected resource.
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

// late counts an action of a holder after the next hold has begun. The holder's own lock was
// acquired at most one lease before the report that its hold had begun.
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

// ends is called when a holder no longer relies on its lock. The hold is no longer watched.
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

// stands records that a process is about to be stopped, and goesOn records that it is about to be
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

// dies records that a process has ended by itself. The process answers no more questions.
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

// forgets records that a master has lost all its data and is back at once.
func (r *referee) forgets() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.emptied = append(r.emptied, time.Now())
	r.tally.Emptied++
}

// counts applies a change to the tally.
func (r *referee) counts(change func(t *lockTally)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.tally)
}
