package protocol

import "time"

// The explorer's world has these parts: a store with a real Slot for each key; processes with real
// Misses; a driver that performs the actions of the Misses; commands and messages on their way; and
// a clock that ticks. A world is a comparable value.
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
	marker     = versions - 1 // the version that stands for: each caller loads for itself
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
	origin [maxKeys]uint8 // the version of the data at the origin
	broken bool           // loads fail
	since  [maxKeys]since // the oldest versions allowed after the changes that have returned
	made   [maxKeys]since // the same after the changes that the store has carried out
	writer writer
	net    [5]command
	left   budget
	loads  uint8 // how many loads have begun, at most 9
	failed failed
}

// budget says for each kind of event how often it may still happen.
type budget struct {
	calls, leaves, ticks, lost, again, gone, twice, cuts, crashes, closes uint8

	evictions, writes, renewals, unstorable, unshared, refusals, updates, joins, unseen uint8
}

// since is two versions of the origin. No answer may be older than the version all, and no fresh
// answer may be older than the version fresh.
type since struct{ all, fresh uint8 }

func (s *since) raise(o since) { s.all, s.fresh = max(s.all, o.all), max(s.fresh, o.fresh) }

// failed is the load of key 0 whose failure the store has recorded last. A later grant or change
// removes it, and so does the end of the record.
type failed struct {
	load          token
	backoff, keep uint8 // when the back-off ends, and when the record ends
}

type process struct {
	dead, closed, cut bool           // cut: messages don't arrive
	told              [maxKeys]since // the oldest versions allowed after the changes it knows of
	open              [maxKeys]uint8 // the flight that callers join, counted from 1; 0: none
	flights           [maxFlights]flight
	late              uint8 // how many cancelled loads have not returned yet
	inbox             [6]message
}

type flight struct {
	used bool
	key  uint8
	// No caller may join: since the flight began, a change has returned in this process, or the
	// flight has learned that its lease may be over.
	old     bool
	m       Miss
	members uint8
	floor   since  // the oldest versions that its callers may get
	seen    uint8  // the version of the value in hand, 0: none
	seenOf  token  // the load that made the value in hand
	token   token  // the token of its last request for the lease
	number  uint8  // the number of its grant
	awaited token  // the load that it was last told to wait for; m.Awaited should be the same
	theirs  uint8  // the version of the outcome that another load has left
	behind  bool   // it is a refresh in the background
	wants   bool   // it waits for a slot
	group   uint8  // flights of one group share a slot; 0: it has no slot
	over    ending // how its own load or the awaited load has ended
	ends    uint8  // when its lease ends, as far as the process can know
	void    bool   // its lease was taken away before the end
	op      op     // the command whose answer it awaits
	renewal op
	renews  bool
	load    loading
	timer   uint8   // when it asks again, while it follows
	began   uint8   // when it began; 0 if the scene has no longest wait
	stored  bool    // the store has taken its result; matters for an update
	box     message // the message that has come while it asks for the lease
}

// isUnderWay reports whether the flight's miss has begun and has not landed. The flight isn't under
// way while its leading caller looks the value up, or asks for the lease in place of a look-up.
func (f *flight) isUnderWay() bool {
	return f.used && f.m.State != Begun && f.m.State != Landed && !f.m.Unseen
}

// loading is a load that runs.
type loading struct {
	runs, leased, fails bool
	returned            bool
	read                uint8 // the version that it has read or written; 0: it hasn't written yet
	turn                bool  // it has the slot
	waits               bool  // another load of its group has the slot, so it waits for one
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
	version  uint8 // the version that it stores, or that a change has made
	ending   ending
	seen     token
	awaited  token
	waited   token // the load that the asker was told to wait for; awaited should be the same
	optional bool  // the command may never arrive
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

// ending says how a load has ended that left no value.
type ending uint8

const (
	noEnding ending = iota
	failure
	unstored
	unshared
	givenUp // the load was cancelled; no process may be told of this ending
)

// message is a message to a process, or in the box of a flight.
type message struct {
	tells   Tells
	key     uint8
	load    token
	version uint8
	ending  ending
	since   since // with TellsChanged: the oldest versions allowed after the change
	again   bool  // not a message: it tells flights that messages arrive again
}

// writer changes the origin and then the cache, in process 0.
type writer struct {
	kind    verb // invalidate, mark, or claim for a Set
	op      op
	number  uint8
	version uint8
}

// frames has each frame once, because Slots compare frames.
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

// inFrame returns the content of a frame.
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

// unused returns an unused token and an unused number.
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
	for k := range r.slots { // a message to a process that doesn't wait makes no difference
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

// isVain reports whether a command on its way can't have an effect any more: its load has no lease,
// and no request of that load for the lease is on its way. If the load has a lease with another
// grant, isVain returns false, because the store must show that the command has no effect then.
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
