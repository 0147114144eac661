package protocol

import "time"

// The explorer's world: a store that is a real Slot for each key, processes with real Misses, and
// between them what a driver does about their actions, commands and messages on their way, and a
// clock that ticks. It is a comparable value.
//
// A token is a small number. If no part of the world knows a token any more, it is used again,
// because otherwise no two worlds would ever be the same.
type token = uint8

const (
	maxProcs   = 3
	maxFlights = 2
	maxKeys    = 2
	tokens     = 24
	versions   = 6
	marker     = versions - 1 // as a version: each caller loads for itself
)

func (s *scene) all(w *world) []process { return w.procs[:s.processes] }

type world struct {
	shared
	procs [maxProcs]process
}

// shared is the state that all processes share.
type shared struct {
	now    uint8
	slots  [maxKeys]Slot
	origin [maxKeys]uint8 // the version of the data there
	broken bool           // loads fail
	since  [maxKeys]since // what the newest change that has returned vouches for
	made   [maxKeys]since // and the newest that the store has made
	writer writer
	net    [5]command
	left   budget
	loads  uint8 // begun so far
	failed failed
}

// budget has, for each kind of event, how often it may still happen.
type budget struct {
	calls, leaves, ticks, lost, again, gone, twice, cuts, crashes, closes uint8

	evictions, writes, renewals, unstorable, unshared, refusals, updates, joins, unseen uint8
}

// since has two versions of the origin: no answer may be older than the first, and no fresh answer
// may be older than the second.
type since struct{ all, fresh uint8 }

func (s *since) raise(o since) { s.all, s.fresh = max(s.all, o.all), max(s.fresh, o.fresh) }

// failed is the load of key 0 whose failure the store has recorded last.
type failed struct {
	load          token
	backoff, keep uint8 // until when
}

type process struct {
	dead, closed, cut bool // cut: messages don't arrive
	told              [maxKeys]since
	open              [maxKeys]uint8 // the flight that callers join, from 1
	flights           [maxFlights]flight
	late              uint8 // loads that were cancelled and have not returned
	inbox             [6]message
}

type flight struct {
	used    bool
	key     uint8
	old     bool // a change has returned in this process since it began
	m       Miss
	members uint8
	floor   since  // what its callers know
	seen    uint8  // the version of the value in hand, 0: none
	seenOf  token  // and whose that is
	token   token  // of the last question
	number  uint8  // of the grant
	awaited token  // the load it was told to wait for last, whatever the miss makes of that
	theirs  uint8  // the version that a load has read which left no value
	behind  bool   // it was begun behind callers' backs
	wants   bool   // a slot
	group   uint8  // with which it has its slot, from 1; 0: it has none
	over    ending // of its own load
	ends    uint8  // when its lease ends for all that it can know
	void    bool   // something has taken the lease away since it was granted
	op      op     // the look-up, the question or what settles the load
	renewal op
	renews  bool
	load    loading
	timer   uint8 // while it follows
	began   uint8 // counts only where there is a longest wait
	stored  bool  // of an update: its result is
	box     message
}

// isUnderWay reports whether its miss has begun and not landed. While the caller that leads looks
// up, or asks in the place of that, the flight is not.
func (f *flight) isUnderWay() bool {
	return f.used && f.m.State != Begun && f.m.State != Landed && !f.m.Unseen
}

// loading is a load that runs.
type loading struct {
	runs, leased, fails bool
	returned            bool
	read                uint8 // the version that it has read, or written
	turn                bool  // it has the slot
	waits               bool  // another load has its slot
}

// op is a command whose answer a miss awaits.
type op struct {
	kind    command
	applied bool
	sent    uint8
	reply   reply
}

type reply struct {
	kind    Kind
	load    token
	number  uint8
	version uint8
	stale   bool
	left    uint8
	ending  ending
}

// command is a command on its way to the store.
type command struct {
	kind     verb
	key      uint8
	load     token
	number   uint8
	version  uint8 // of what it stores, or what a change vouches for
	ending   ending
	seen     token
	awaited  token
	waited   token // the load that the asker was told to wait for, whatever it makes of that
	optional bool  // it may never arrive
}

type verb uint8

const (
	noVerb verb = iota
	look
	lease
	fill
	conclude
	renew
	release
	invalidate
	mark
	claim
	verbs
)

var verbNames = [verbs]string{
	"", "get", "lease", "fill", "conclude", "renew", "release", "invalidate", "mark", "claim",
}

// ending is how a load ended that left no value.
type ending uint8

const (
	noEnding ending = iota
	failure
	unstored
	unshared
	givenUp // which is no ending that anybody may be told of
)

// message is one to a process, or in the box of a flight.
type message struct {
	tells   Tells
	key     uint8
	load    token
	version uint8
	ending  ending
	since   since // of TellsChanged
	again   bool  // to a flight: messages arrive again
}

// writer changes the origin and then the cache, in process 0.
type writer struct {
	kind    verb // invalidate, mark, or claim for a Set
	op      op
	number  uint8
	version uint8
}

// Frames, which Slots compare, are made once.
var frames = func() (all [tokens][versions][2]string) {
	for t := range all {
		for v := range all[t] {
			for stale := range all[t][v] {
				all[t][v][stale] = frameOf(id(byte(t)), string([]byte{byte(v), byte(stale)}))
			}
		}
	}
	return all
}()

const markAt = 19

var ids = func() (all [tokens]string) {
	for t := range all {
		all[t] = LoadOf(frames[t][0][0])
	}
	all[0] = ""
	return all
}()

// inFrame is the content of a frame.
func inFrame(f string) (load token, version uint8, stale bool) {
	if f == "" {
		return 0, 0, false
	}
	return f[2], f[18], f[markAt] != 0
}

func use(version uint8, stale bool) Use {
	switch {
	case version == 0:
		return Nothing
	case version == marker:
		return Passing
	case stale:
		return Meanwhile
	}
	return Fresh
}

func at(n uint8) time.Duration { return time.Duration(n) }

// fresh returns an unused token and an unused number.
func (w *world) unused(s *scene) (t token, n uint8) {
	var used, numbers uint64 = 1, 1
	note := func(ts ...token) {
		for _, t := range ts {
			used |= 1 << t
		}
	}
	order := func(c command) {
		note(c.load, c.seen, c.awaited, c.waited)
		numbers |= 1 << c.number
	}
	for k := range w.slots[:s.keys] {
		slot := &w.slots[k]
		load, _, _ := inFrame(slot.Frame)
		note(load, slot.Lease.Token[0], slot.Record.Load[0])
		numbers |= 1 << slot.Lease.Number
	}
	for _, c := range w.net {
		order(c)
	}
	order(w.writer.op.kind)
	note(w.writer.op.reply.load, w.failed.load)
	numbers |= 1<<w.writer.number | 1<<w.writer.op.reply.number
	for p := range s.all(w) {
		for i := range w.procs[p].flights {
			f := &w.procs[p].flights[i]
			note(f.token, f.seenOf, f.awaited, f.m.Awaited[0], f.box.load, f.op.reply.load,
				f.renewal.reply.load)
			order(f.op.kind)
			order(f.renewal.kind)
			numbers |= 1<<f.number | 1<<f.op.reply.number
		}
		for _, m := range w.procs[p].inbox {
			note(m.load)
		}
	}
	for used&(1<<t) != 0 {
		t++
	}
	for numbers&(1<<n) != 0 {
		n++
	}
	return t, n
}

// tidy removes state that no longer makes a difference, so that worlds with the same behaviour are
// equal.
func (r *run) tidy() {
	for p := range r.all(&r.world) {
		for i := range r.procs[p].flights {
			f := &r.procs[p].flights[i]
			state := f.m.State
			if f.op.kind.kind == claim {
				state = Asking
			}
			switch state {
			case Asking:
				f.number, f.ends, f.timer = 0, 0, 0
			case Leading, Settling, Failing:
				f.timer = 0
			case Following:
				f.token, f.number, f.void, f.ends = 0, 0, false, 0
			default:
				f.token, f.number, f.void, f.ends, f.timer = 0, 0, false, 0, 0
			}
			if !f.op.applied {
				f.op.reply = reply{}
			}
		}
	}
	for k := range r.slots { // who is told and doesn't wait makes no difference
		for p := range r.all(&r.world) {
			if w := &r.slots[k].Waiters; w.Inboxes&(1<<p) != 0 && !r.procs[p].waits(uint8(k)) {
				if w.Inboxes &^= 1 << p; w.Inboxes == 0 {
					*w = Waiters{}
				}
			}
		}
	}
	if r.failed.keep <= r.now {
		r.failed = failed{}
	}
	for i, c := range r.net {
		if c != (command{}) && r.isVain(c) {
			r.net[i] = command{}
		}
	}
}

// isVain reports whether a command on its way can do nothing any more: its load has no lease, and
// no question of that load is on its way. (Its grant may be another by now: that it does nothing
// then is for the store to show.)
func (r *run) isVain(c command) bool {
	asks := func(o command) bool { return (o.kind == lease || o.kind == claim) && o.load == c.load }
	if asks(c) || c.kind == invalidate || c.kind == mark ||
		r.slots[c.key].Lease.Token == id(c.load) || asks(r.writer.op.kind) {
		return false
	}
	for _, o := range r.net {
		if asks(o) {
			return false
		}
	}
	for p := range r.all(&r.world) {
		for i := range r.procs[p].flights {
			if f := &r.procs[p].flights[i]; asks(f.op.kind) && !f.op.applied {
				return false
			}
		}
	}
	return true
}
