package protocol

import "time"

// ID is the token of a load.
type ID [16]byte

// Miss is the state of one process for one key. It begins when a look-up has found nothing fresh,
// and ends with a result. Step gets an event and returns what the driver must do next. A Miss does
// nothing by itself. It is a comparable value, so a copy of it is a state that the explorer can
// keep.
//
// All times are durations since some fixed moment, on the clock of the process.
type Miss struct {
	// The driver sets these fields before the first step.
	Config
	Role
	// The store can't be used: the look-up has failed, or later the request for the lease.
	Down   bool
	Unseen bool // there was no look-up: the miss has a slot already, and asks for the lease at once
	Seen   Use  // what the value that the look-up found is good for

	State State
	Ended bool // no caller waits any longer, or the cache is closing
	Turn  bool // the miss has a slot, and no load has taken the slot over
	// How often the miss had to ask again because the key was changed, another load took the lease
	// of its running load, a grant came too late, or the store's answer was a value or a record of
	// no use. If a message brings a value of no use, the miss asks again without counting it.
	Restarts uint8
	Awaited  ID // the load that the miss was last told to wait for
	// When the lease ends unless it is renewed; 0: the miss knows of no lease.
	Until time.Duration
}

// Role says for whom a miss works, and what that allows. The zero Role is a miss whose callers wait
// for the next value, from whichever load it comes.
type Role struct {
	Reads bool // the callers accept a stale value that may be served
	// A refresh in the background: no caller waits for it, and it waits for no other load.
	Behind bool
	Solo   bool // the result is for one caller, and this caller waits for no other load
	// The stored value said that each caller loads for itself, so the miss doesn't ask for the
	// lease.
	Apart bool
	// The callers accept only the result of their own load; it has the lease if no other load has
	// it.
	Own bool
	// The load is a write, under a lease that the miss has claimed; Begin says when the claim was
	// sent.
	Claims bool
}

// Config has the settings that all misses of a cache share.
type Config struct {
	LeaseTTL   time.Duration
	FailClosed bool // while the store can't be used, nothing is loaded
	Soft       bool // callers take a stale value by themselves after SoftTimeout
}

// MaxRestarts is how often a miss asks again for the reasons that Miss.Restarts names. After that
// its process loads without the lease. So even a key that is invalidated faster than it loads gets
// an answer. If the lease for which a miss waits ends, this is no restart.
const MaxRestarts = 2

// State says what a miss waits for.
type State uint8

const (
	Begun     State = iota // its first step
	Queued                 // a slot, to ask for the lease
	Asking                 // the answer to its request for the lease
	Leading                // its own load, which has the lease
	Settling               // the store, to which the result of its own load was sent
	Failing                // the store, to which the failure of its own load was sent
	Following              // a load that has the lease, in another process or in this one
	Leaving                // the decision whether a caller wants a refresh that can't be done now
	Spared                 // a slot, to load without the lease
	Alone                  // its own load, without the lease
	Landed                 // nothing: the callers have their result
)

// Use says what a stored value is good for. A greater Use up to Fresh includes the smaller ones.
type Use uint8

const (
	Nothing   Use = iota // there is no value
	Shown                // the next load may see it
	OnError              // it may be served in place of an error
	Meanwhile            // it may be served while it is refreshed
	Fresh                // it may be served
	Passing              // it says that each caller loads for itself
)

// Kind is the kind of an event. The comments name the fields of the Event that the kind uses.
type Kind uint8

const (
	Begin      Kind = iota // the first event; Sent, if the miss Claims
	Turned                 // the miss has got a slot
	Refused                // there is no slot for the miss
	Granted                // the store has granted the lease; Now, Sent
	Held                   // another load has the lease; Load
	Value                  // the store has a value after all; Use, Mine
	Outcome                // the last load has left a record in place of a value; Left
	Unanswered             // the store has not answered the request for the lease
	Changed                // while the miss follows: the key was changed
	Filled                 // while the miss follows: the awaited load has stored a value; Use, Mine
	// While the miss follows: the awaited load has ended without a value; Left.
	Over
	// While the miss follows: another message has come, or the time to wait is over.
	Woken
	Overdue    // the miss has followed for longer than a load can take
	Wanted     // a caller has joined the refresh
	Unwanted   // no caller has joined the refresh
	Renewed    // the lease was renewed; Sent
	Unrenewed  // the store has not answered the request to renew the lease; Sent
	Gone       // no load has the lease
	Taken      // another load has the lease
	Returned   // the miss's load has returned a result that can be stored
	Unstorable // the miss's load has returned a result that must not be stored
	Failed     // the miss's load has failed
	Stored     // the store has the result, or has refused it
	Unsure     // the store has not answered, so it may have the result or not
	// The store knows how the load has ended, or the driver will tell it again.
	Told
	End // no caller waits any longer, or the cache is closing
	kinds
)

// Left is what a load has left in the store in place of a value.
type Left uint8

const (
	Failure    Left = iota // an error
	Result                 // a result for the processes that waited, which isn't stored
	Unreadable             // such a result, but it is unknown whether it was invalidated meanwhile
	Damaged                // bytes that are no result
	Unshared               // the statement that the result is for one caller only
	Unknown                // a kind of record that only a later release knows
)

// Event is something that has happened. Kind says which of the other fields are set.
type Event struct {
	Kind Kind
	Now  time.Duration // when the driver looks at the answer
	Sent time.Duration // when the request was sent that is answered now
	Load ID            // the load that has the lease
	Use  Use
	// The value is of the awaited load; no soft tag and no unsent change has marked it stale since.
	Mine bool
	Left Left
}

// Do is a set of things that the driver must do, in the order of the constants.
type Do uint32

const (
	Seal       Do = 1 << iota // let no further caller join, and stop renewing the lease
	CancelLoad                // cancel the load, and ignore its result
	EndTurn                   // give the slot back
	// Release the lease by its token; at least one try comes before the next steps.
	Release
	Fill     // store the result
	Land     // give the Landing to all callers
	Conclude // tell the store why there is no result
	// Release the lease in the background, because it may have been granted.
	ReleaseLater
	ConcludeLater // tell the store in the background why there is no result
	Refresh       // refresh the served value in the background
	LetGo         // find out whether a caller wants the refresh: Wanted or Unwanted
	// Wait for messages about the key, and for the end of the awaited lease.
	Follow
	TakeTurn // take a slot
	Ask      // ask for the lease
	Load     // start the load, which takes over the slot
	Renew    // renew the lease from now on, until the load or the lease ends
)

// Landing says what the callers get.
type Landing uint8

const (
	NoLanding      Landing = iota
	LandFound              // the stored value
	LandStale              // the stored value, which is stale
	LandMarker             // the statement that each caller loads for itself
	LandTheirs             // the result of the awaited load, which isn't stored
	LandTheirError         // the error of the awaited load, or a stale value
	LandOwn                // the result of the miss's own load
	LandOwnError           // the error of the miss's own load, or a stale value
	LandRefused            // the error that there is no slot, or a stale value
	LandDown               // the error that the store can't be used, or a stale value
	LandOverdue            // the error that the wait was too long, or a stale value
	// The error that the miss has ended: no caller waits, or the cache is closed.
	LandEnded
)

// Step changes the state by an event, and returns what the driver must do. If the state does not
// wait for this event, nothing changes: the event belongs to a request, a load or a wait that is
// over.
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

// begun handles the first event.
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

// turned handles the events of a miss that waits for a slot.
func (m *Miss) turned(e Event, do Do, next State) (Do, Landing) {
	switch e.Kind {
	case Turned:
		// A load gives its slot back by itself, even if it ends late.
		m.Turn, m.State = do != Load, next
		return do, 0
	case Refused:
		return m.land(0, LandRefused)
	}
	return 0, 0
}

// asking handles the answer to the request for the lease. After a grant the miss leads. If another
// load has the lease, the miss gives its slot back and follows, unless it is Solo, Behind or Own
// and so never waits for another load. If the request was made in place of a look-up, and the
// answer is a value or doesn't come, the miss is Begun again. In the first case the driver looks at
// the value. In the second case it reads the store, because a store that grants no leases may still
// have values.
func (m *Miss) asking(e Event) (Do, Landing) {
	switch e.Kind {
	case Unanswered, Granted, Held, Value, Outcome:
	default:
		return 0, 0
	}
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
	case Unanswered: // the lease may have been granted, or may be granted later
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
		// Another process has refreshed the value, but a caller may have joined that wants a load.
		if m.Behind && e.Use != Nothing {
			m.Seen = e.Use
			return m.letGo(do)
		}
		return m.found(do, e, true)
	case Outcome:
		return m.noValue(m.endTurn(), e.Left)
	}
	return 0, 0
}

// granted handles a grant. If LeaseTTL has passed since the request, because the process stood
// still or the store was slow, the lease may have ended and another load may have it. Then the miss
// releases its lease, in case it still exists, and asks again. If no caller waits any longer, or if
// the cache is closing, the miss releases the lease and ends.
func (m *Miss) granted(e Event) (Do, Landing) {
	switch {
	case m.Ended:
		return m.land(m.endTurn()|Release, LandEnded)
	case e.Now-e.Sent >= m.LeaseTTL:
		m.Restarts++
		return m.again(m.endTurn() | Release)
	}
	m.State, m.Turn = Leading, false
	m.Until = e.Sent + m.LeaseTTL // counted from the request, which was before the grant
	return Load | Renew, 0
}

// leading handles the events of a miss whose load has the lease.
func (m *Miss) leading(e Event) (Do, Landing) {
	switch e.Kind {
	case Renewed:
		m.Until = e.Sent + m.LeaseTTL
	case Unrenewed:
		if e.Sent >= m.Until { // the lease may have ended
			return m.lose(), 0
		}
	case Gone: // invalidated, evicted or expired; the load goes on for the callers that wait for it
		return m.lose(), 0
	case Taken:
		if m.Claims { // a write isn't cancelled, because it may be half done
			return m.lose(), 0
		}
		// The miss can follow the other load.
		m.Restarts++
		return m.again(m.lose() | CancelLoad)
	case Returned:
		m.State = Settling
		return Fill, 0
	case Unstorable, Failed:
		if m.Claims { // the writer invalidates the key by itself
			return m.alone(e)
		}
		if m.State = Settling; e.Kind == Failed {
			m.State = Failing
		}
		return Conclude, 0
	}
	return 0, 0
}

// lose notes that the lease is lost.
func (m *Miss) lose() Do {
	m.Until = 0
	return Seal
}

// settling handles the store's answer to the result or to the failure of the miss's load.
func (m *Miss) settling(e Event, landing Landing) (Do, Landing) {
	switch e.Kind {
	case Stored, Told:
		return m.land(0, landing)
	case Unsure:
		// If the result was not stored, ConcludeLater wakes the processes that wait; otherwise it
		// does nothing.
		if m.Claims {
			return m.land(0, landing)
		}
		return m.land(ConcludeLater, landing)
	}
	return 0, 0
}

// following handles the events of a miss that waits for another load.
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

// found handles a stored value. The callers get a fresh value. They also get the value of the
// awaited load, even if it is stale already because its TTL is short. If counts is true and the
// value can't be used, the next request is one of the restarts.
func (m *Miss) found(do Do, e Event, counts bool) (Do, Landing) {
	m.Seen = e.Use
	switch {
	case e.Use == Passing && m.Solo:
		return m.withoutLease(do)
	case e.Use == Passing:
		return m.land(do, LandMarker)
	case e.Use == Fresh, e.Mine && e.Use != Nothing:
		return m.land(do, LandFound)
	case e.Use == Meanwhile && m.Reads && !m.Soft: // no caller waits for the refresh
		return m.land(do|Refresh, LandStale)
	case counts: // the value can't be used, so ask again although it is there
		m.Restarts++
	}
	return m.again(do)
}

// noValue handles the end of a load that has left no value.
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

// leaving handles the decision whether a caller wants a refresh that can't be done now.
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

// alone handles the end of a load without the lease.
func (m *Miss) alone(e Event) (Do, Landing) {
	switch e.Kind {
	case Returned, Unstorable:
		return m.land(0, LandOwn)
	case Failed:
		return m.land(0, LandOwnError)
	case Refused: // another load has taken the slot
		return m.land(0, LandRefused)
	}
	return 0, 0
}

// again takes a slot to ask for the lease. After MaxRestarts it loads without the lease.
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

// withoutLease loads for the callers of this process only. The result is never stored, because
// without a lease an invalidation during the load would go unnoticed.
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

// withoutStore decides how a miss goes on if the store can't be used. A refresh in the background
// ends, unless a caller waits for it. Otherwise the callers get the stored value if it may be
// served on errors. If there is no such value, they get an error if FailClosed is set, and a load
// without the lease if it isn't.
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

// letGo ends a refresh that can't be done now, unless a caller has begun to wait for it.
func (m *Miss) letGo(do Do) (Do, Landing) {
	m.Behind = false
	if m.Ended {
		return m.land(do, LandEnded)
	}
	m.State = Leaving
	return do | LetGo, 0
}

// end handles the event End. If a request for the lease, a fill or a failure is on its way to the
// store, the miss still waits for the answer, so that no lease stays behind.
func (m *Miss) end() (Do, Landing) {
	m.Ended = true
	switch m.State {
	case Begun, Queued, Following, Spared, Leaving:
		return m.land(m.endTurn(), LandEnded)
	case Leading:
		if m.Claims {
			return m.land(CancelLoad, LandEnded)
		}
		// The load was given up and has not failed, so the processes that wait for it ask again,
		// and one of them loads.
		return m.land(CancelLoad|Release, LandEnded)
	case Alone:
		return m.land(CancelLoad, LandEnded)
	}
	return 0, 0
}

// endTurn gives the slot back, because a miss must not wait for another load while it has a slot.
func (m *Miss) endTurn() Do {
	if !m.Turn {
		return 0
	}
	m.Turn = false
	return EndTurn
}

// land ends the miss: the callers get the landing.
func (m *Miss) land(do Do, landing Landing) (Do, Landing) {
	m.State = Landed
	return do | Land, landing
}
