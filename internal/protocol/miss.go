package protocol

import "time"

// ID is the token of a load.
type ID [16]byte

// Miss is what one process does about one key between a look-up that found nothing fresh and a
// result. It decides and does nothing: Step is told what happened and says what to do. It is a
// comparable value, so that a copy of it is a state.
//
// Instants are durations on the clock of the process, from wherever that counts.
type Miss struct {
	// Set before the first step:
	Config
	Reads  bool // its callers take a stale value for an answer, if one is good enough
	Behind bool // nobody waits for it: it doesn't wait for others either
	Solo   bool // the result is for one caller, who waits for nobody else's load
	Apart  bool // that caller was told to load for itself: the lease isn't asked for
	Own    bool // it takes nothing but the result of its own load, with the lease if nobody else has it
	Claims bool // its load is a write, under a lease that was taken over: Begin says when that was asked for
	Down   bool // the store can't be used: the look-up could not be made, or later the lease not be asked for
	Unseen bool // nothing was looked up: it has its slot, and asks for the lease at once
	Seen   Use  // what it found, which won't do

	State    State
	Ended    bool          // nobody waits any more, or the cache is closing
	Turn     bool          // it has a slot in hand that no load has yet
	Restarts uint8         // what it waited for was changed or lost under it
	Awaited  ID            // the load that it was told to wait for last
	Until    time.Duration // when its lease ends unless it is renewed; 0: it has none, as far as it knows
}

// Config is what all misses of a cache have in common.
type Config struct {
	LeaseTTL   time.Duration
	FailClosed bool // without the store there are no loads
	Soft       bool // callers lose patience by themselves and take what is stale then
}

// MaxRestarts is how often a miss asks again because what it waited for was changed or lost under
// it. After that its process loads without the lease, so that a key which is invalidated faster
// than it loads still answers.
const MaxRestarts = 2

// State is what a miss waits for.
type State uint8

const (
	Begun     State = iota // its first step
	Queued                 // its turn to ask for the lease
	Asking                 // the answer to that question
	Leading                // its own load, which has the lease
	Settling               // the store, which is told of that load's result
	Failing                // the store, which is told of its failure
	Following              // a load that has the lease, in another process or in this one
	Leaving                // whether anybody wants a refresh that can't be done now
	Spared                 // its turn to load without the lease
	Alone                  // its own load, without the lease
	Landed                 // nothing
)

// Use is what a value in the store is good for.
type Use uint8

const (
	Nothing   Use = iota // there is none
	Shown                // for being shown to the next load
	OnError              // for being served instead of an error
	Meanwhile            // and while it is refreshed
	Fresh                // for being served
	Passing              // for saying that each caller loads for itself
)

// Kind is what happened.
type Kind uint8

const (
	Begin      Kind = iota
	Turned          // the slot came
	Refused         // there is no slot for it
	Granted         // the lease is its own: Sent
	Held            // another load has it: Load
	Value           // there is a value after all: Use
	Outcome         // the load that had the lease left none: Left, Load
	Unanswered      // the store could not be asked for the lease
	Changed         // told while it follows: the key was changed
	Filled          // told while it follows: the awaited load has stored a value: Use
	Over            // told while it follows: the awaited load left none: Left
	Woken           // told something else while it follows, or the time to wait is over
	Overdue         // it has followed for longer than any load can take
	Wanted          // somebody has joined the refresh
	Unwanted        // nobody has
	Renewed         // the lease is still its own: Sent
	Unrenewed       // the store could not be asked to renew it: Sent
	Gone            // the lease is nobody's
	Taken           // another load has the lease
	Returned        // its load has a result that is to be stored
	Unstorable      // its load has a result that isn't
	Failed          // its load has failed
	Stored          // the result is in the store, or was refused there
	Unsure          // nobody knows whether the result is in the store
	Told            // the store knows what became of the load, or will be told again
	End             // nobody waits any more, or the cache is closing
	kinds
)

// Left is what a load left that left no value.
type Left uint8

const (
	Failure    Left = iota // an error
	Result                 // its result, for those who waited
	Unreadable             // its result, of which nobody can say now whether it has been invalidated
	Damaged                // its result, which is none
	Unshared               // nothing: it is for nobody else
	Unknown                // something that only a later release knows
)

// Event is what happened, with what its kind says.
type Event struct {
	Kind Kind
	Now  time.Duration // Granted: when the answer is looked at
	Sent time.Duration // when the question was sent that is answered
	Load ID
	Use  Use
	Mine bool // Value, Filled: it is of the load that was awaited, and nobody has marked it stale since
	Left Left
}

// Do is what is to be done, in this order.
type Do uint32

const (
	Seal          Do = 1 << iota // nobody joins it any more, and its lease isn't renewed any more
	CancelLoad                   // the load is to stop, and is nobody's from now on
	EndTurn                      // the slot is given back
	Release                      // the lease is given up by its token, once at least before what follows
	Fill                         // the result is stored
	Land                         // all who wait get the Landing
	Conclude                     // the store is told why there is no result
	ReleaseLater                 // the lease is given up behind everybody's back: it may have been granted
	ConcludeLater                // and so is the store told
	Refresh                      // what is served is refreshed behind its callers' backs
	LetGo                        // the refresh gives itself up unless somebody wants it
	Follow                       // messages about the key are waited for, or the end of the awaited load's lease
	TakeTurn                     // a slot is taken
	Ask                          // the lease is asked for
	Load                         // the load is started, with the slot
	Renew                        // and its lease is renewed from now on, until the load is over or the lease is
)

// Landing is what those who wait get.
type Landing uint8

const (
	NoLanding      Landing = iota
	LandFound              // the value that is there
	LandStale              // that value, which is stale
	LandMarker             // that each loads for itself
	LandTheirs             // the result of the load that was awaited, which isn't stored
	LandTheirError         // its error, or the stale value
	LandOwn                // the result of its own load
	LandOwnError           // its error, or the stale value
	LandRefused            // that there was no slot, or the stale value
	LandDown               // that the store can't be used, or the stale value
	LandOverdue            // that it has waited for too long, or the stale value
	LandEnded              // that it has ended: nobody waits, or the cache is closed
)

// Step takes note of what happened and says what to do. An event that a state does not wait for
// changes nothing: it is of a question, a load or a wait that is over.
func (m *Miss) Step(e Event) (Do, Landing) {
	if e.Kind == End {
		return m.end()
	}
	switch m.State {
	case Begun:
		return m.begun(e)
	case Queued:
		return m.turned(e, Ask, Asking)
	case Asking:
		return m.asking(e)
	case Leading:
		return m.leading(e)
	case Settling:
		return m.settling(e, LandOwn)
	case Failing:
		return m.settling(e, LandOwnError)
	case Following:
		return m.following(e)
	case Leaving:
		return m.leaving(e)
	case Spared:
		return m.turned(e, Load, Alone)
	case Alone:
		return m.alone(e)
	}
	return 0, 0
}

func (m *Miss) begun(e Event) (Do, Landing) {
	switch {
	case e.Kind != Begin:
		return 0, 0
	case m.Claims && m.Down:
		m.State = Alone
		return Load, 0
	case m.Claims:
		m.State, m.Until = Leading, e.Sent+m.LeaseTTL
		return Load | Renew, 0
	case m.Down:
		return m.withoutStore(0)
	case m.Apart:
		return m.withoutLease(0)
	case m.Unseen:
		m.Turn, m.State = true, Asking
		return Ask, 0
	}
	return m.again(0)
}

// turned goes on when its turn has come.
func (m *Miss) turned(e Event, do Do, next State) (Do, Landing) {
	switch e.Kind {
	case Turned:
		m.Turn, m.State = do != Load, next // a load gives its slot back itself, however late it ends
		return do, 0
	case Refused:
		return m.land(0, LandRefused)
	}
	return 0, 0
}

// asking: granted, lead; held, give the slot back and follow. One that asked in the place of a
// look-up has not begun if that brought a value, which is looked at first, or no answer, which says
// nothing about a value that can be read.
func (m *Miss) asking(e Event) (Do, Landing) {
	unseen := m.Unseen
	switch m.Unseen = false; {
	case unseen && e.Kind == Value:
		m.State = Begun
		return m.endTurn(), 0
	case unseen && e.Kind == Unanswered:
		m.State = Begun
		return m.endTurn() | ReleaseLater, 0
	}
	if m.Own {
		switch e.Kind {
		case Held, Value, Outcome:
			return m.withoutLease(0)
		case Unanswered:
			return m.withoutLease(ReleaseLater)
		}
	}
	switch e.Kind {
	case Unanswered: // it may have been granted, or be granted later
		return m.withoutStore(ReleaseLater)
	case Granted:
		return m.granted(e)
	case Held:
		switch do := m.endTurn(); {
		case m.Ended:
			return m.land(do, LandEnded)
		case m.Solo:
			return m.withoutLease(do)
		case m.Behind:
			return m.letGo(do)
		default:
			m.State, m.Awaited = Following, e.Load
			return do | Follow, 0
		}
	case Value:
		do := m.endTurn()
		if m.Behind && e.Use != Nothing { // refreshed by somebody else; who has joined meanwhile asked for a load
			m.Seen = e.Use
			return m.letGo(do)
		}
		return m.found(do, e, true)
	case Outcome:
		return m.noValue(m.endTurn(), e.Left)
	}
	return 0, 0
}

// granted: a lease that has ended by now, because this process stood still, may be another's. It is
// given back, should it still be there, and so is one that came too late for everybody who waited.
func (m *Miss) granted(e Event) (Do, Landing) {
	switch {
	case m.Ended:
		return m.land(m.endTurn()|Release, LandEnded)
	case e.Now-e.Sent >= m.LeaseTTL:
		m.Restarts++
		return m.again(m.endTurn() | Release)
	}
	m.State, m.Turn = Leading, false
	m.Until = e.Sent + m.LeaseTTL // counted from before the question
	return Load | Renew, 0
}

func (m *Miss) leading(e Event) (Do, Landing) {
	switch e.Kind {
	case Renewed:
		m.Until = e.Sent + m.LeaseTTL
	case Unrenewed:
		if e.Sent >= m.Until { // as good as gone: nobody knows
			return m.lose(), 0
		}
	case Gone: // invalidated or evicted: the load goes on for those who wait for it
		return m.lose(), 0
	case Taken:
		if m.Claims { // a write isn't cancelled, it may be half done
			return m.lose(), 0
		}
		// There is somebody to follow.
		m.Restarts++
		return m.again(m.lose() | CancelLoad)
	case Returned:
		m.State = Settling
		return Fill, 0
	case Unstorable, Failed:
		if m.Claims { // whose caller invalidates the key
			return m.alone(e)
		}
		if m.State = Settling; e.Kind == Failed {
			m.State = Failing
		}
		return Conclude, 0
	}
	return 0, 0
}

func (m *Miss) lose() Do {
	m.Until = 0
	return Seal
}

func (m *Miss) settling(e Event, landing Landing) (Do, Landing) {
	switch e.Kind {
	case Stored, Told:
		return m.land(0, landing)
	case Unsure: // if it was not stored, those who wait are told; if it was, that does nothing
		if m.Claims {
			return m.land(0, landing)
		}
		return m.land(ConcludeLater, landing)
	}
	return 0, 0
}

// following is what a miss that follows is told.
func (m *Miss) following(e Event) (Do, Landing) {
	switch e.Kind {
	case Changed:
		m.Restarts++
		return m.again(0)
	case Filled:
		return m.found(0, e, false)
	case Over:
		return m.noValue(0, e.Left)
	case Woken:
		return m.again(0)
	case Overdue:
		return m.land(0, LandOverdue)
	}
	return 0, 0
}

// found takes a value that is there: any that is fresh or, however short its life, the one of the
// load that was awaited.
func (m *Miss) found(do Do, e Event, counts bool) (Do, Landing) {
	m.Seen = e.Use
	switch {
	case e.Use == Passing && m.Solo:
		return m.withoutLease(do)
	case e.Use == Passing:
		return m.land(do, LandMarker)
	case e.Use == Fresh, e.Mine && e.Use != Nothing:
		return m.land(do, LandFound)
	case e.Use == Meanwhile && m.Reads && !m.Soft: // nobody waits for its refresh
		return m.land(do|Refresh, LandStale)
	case counts: // it is none that can be used: ask again in spite of it
		m.Restarts++
	}
	return m.again(do)
}

// noValue takes what became of a load that left no value.
func (m *Miss) noValue(do Do, left Left) (Do, Landing) {
	switch left {
	case Failure:
		return m.land(do, LandTheirError)
	case Result:
		return m.land(do, LandTheirs)
	case Damaged, Unshared:
		return m.withoutLease(do)
	}
	m.Restarts++
	return m.again(do)
}

func (m *Miss) leaving(e Event) (Do, Landing) {
	switch e.Kind {
	case Unwanted:
		return m.land(0, LandEnded)
	case Wanted:
		if m.Down {
			return m.withoutStore(0)
		}
		return m.again(0)
	}
	return 0, 0
}

func (m *Miss) alone(e Event) (Do, Landing) {
	switch e.Kind {
	case Returned, Unstorable:
		return m.land(0, LandOwn)
	case Failed:
		return m.land(0, LandOwnError)
	case Refused: // another load has its slot
		return m.land(0, LandRefused)
	}
	return 0, 0
}

// again has the lease asked for, unless that has been in vain too often.
func (m *Miss) again(do Do) (Do, Landing) {
	switch {
	case m.Ended:
		return m.land(do, LandEnded)
	case m.Restarts > MaxRestarts:
		return m.withoutLease(do)
	}
	m.State = Queued
	return do | TakeTurn, 0
}

// withoutLease loads for the callers of this process alone. That is never stored: nobody knows
// whether the key is invalidated meanwhile.
func (m *Miss) withoutLease(do Do) (Do, Landing) {
	if m.Ended {
		return m.land(do|m.endTurn(), LandEnded)
	}
	if m.Turn {
		m.Turn, m.State = false, Alone
		return do | Load, 0
	}
	m.State = Spared
	return do | TakeTurn, 0
}

// withoutStore goes on when the store can't be used, as the policy says.
func (m *Miss) withoutStore(do Do) (Do, Landing) {
	m.Down = true
	switch serves := m.Reads && m.Seen >= OnError && m.Seen <= Fresh; {
	case m.Behind:
		return m.letGo(do | m.endTurn())
	case serves, m.FailClosed:
		return m.land(do|m.endTurn(), LandDown)
	}
	return m.withoutLease(do)
}

// letGo ends a refresh that can't be done now, unless a caller has started to wait for it.
func (m *Miss) letGo(do Do) (Do, Landing) {
	m.Behind = false
	if m.Ended {
		return m.land(do, LandEnded)
	}
	m.State = Leaving
	return do | LetGo, 0
}

// end: nobody waits any more. A question that is out is waited for, and what settles a lease is
// done all the same.
func (m *Miss) end() (Do, Landing) {
	m.Ended = true
	switch m.State {
	case Begun, Queued, Following, Spared, Leaving:
		return m.land(m.endTurn(), LandEnded)
	case Leading:
		if m.Claims {
			return m.land(CancelLoad, LandEnded)
		}
		// Given up here, not failed at the origin: those who wait elsewhere ask again and load for
		// themselves
		return m.land(CancelLoad|Release, LandEnded)
	case Alone:
		return m.land(CancelLoad, LandEnded)
	}
	return 0, 0
}

// endTurn gives the slot back: nobody sleeps with one in hand.
func (m *Miss) endTurn() Do {
	if !m.Turn {
		return 0
	}
	m.Turn = false
	return EndTurn
}

func (m *Miss) land(do Do, landing Landing) (Do, Landing) {
	m.State = Landed
	return do | Land, landing
}
