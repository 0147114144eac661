package protocol

import "time"

// ID is the token of a load.
type ID [16]byte

// Miss is the state machine of what one process does about one key, after a look-up that found
// nothing fresh and until there is a result. It decides and does nothing itself: Step gets an event
// and returns what to do. A Miss is a comparable value, so a copy of it is a state, and the
// explorer can recognise states that it has seen.
//
// Instants are durations on the clock of the process; the zero of that clock doesn't matter.
type Miss struct {
	// Set before the first step:
	Config
	Reads  bool // its callers accept a stale value, if it may be served
	Behind bool // no caller waits for it, so it doesn't wait for other loads either
	Solo   bool // the result is for one caller, which doesn't wait for other loads
	Apart  bool // it was told to load for itself: the lease isn't asked for
	Own    bool // it takes only the result of its own load, which has the lease if no other load has it
	Claims bool // its load is a write, under a lease that was taken over; Begin says when the claim was sent
	Down   bool // the store can't be used: the look-up failed, or later the request for the lease
	Unseen bool // there was no look-up: it has its slot, and asks for the lease at once
	Seen   Use  // what the value that it found may be used for

	State    State
	Ended    bool          // no caller waits any more, or the cache is closing
	Turn     bool          // it has a slot that it has not passed on to a load
	Restarts uint8         // how often what it waited for was changed or lost
	Awaited  ID            // the load for which it waits, or waited last
	Until    time.Duration // when its lease ends unless it is renewed; 0: it has none, as far as it knows
}

// Config has the settings that all misses of a cache share.
type Config struct {
	LeaseTTL   time.Duration
	FailClosed bool // without the store there are no loads
	Soft       bool // SoftTimeout is set: after it callers take a stale value by themselves
}

// MaxRestarts is how often a miss asks again because what it waited for was changed or lost. After
// that the process loads without the lease, so that even a key which is invalidated faster than it
// loads gets an answer.
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

// Use is what a stored value may be used for. A greater Use, up to Fresh, includes the smaller
// ones.
type Use uint8

const (
	Nothing   Use = iota // there is none
	Shown                // for being shown to the next load
	OnError              // for being served instead of an error
	Meanwhile            // and while it is refreshed
	Fresh                // for being served
	Passing              // for saying that each caller loads for itself
)

// Kind is what has happened to a [Miss].
type Kind uint8

const (
	Begin      Kind = iota
	Turned          // the slot came
	Refused         // there is no slot for it
	Granted         // the lease is its own: Sent
	Held            // another load has it: Load
	Value           // there is a value after all: Use
	Outcome         // the load that had the lease has left no value: Left, Load
	Unanswered      // the request for the lease got no answer
	Changed         // a message while it follows: the key was changed
	Filled          // a message while it follows: the awaited load has stored a value: Use
	Over            // a message while it follows: the awaited load has left no value: Left
	Woken           // another message while it follows, or the time to wait is over
	Overdue         // it has followed for longer than any load can take
	Wanted          // a caller has joined the refresh
	Unwanted        // no caller has joined the refresh
	Renewed         // the lease is still its own: Sent
	Unrenewed       // the renewal got no answer: Sent
	Gone            // no load has the lease
	Taken           // another load has the lease
	Returned        // its load has a result that is to be stored
	Unstorable      // its load has a result that is not to be stored
	Failed          // its load has failed
	Stored          // the result is in the store, or was refused there
	Unsure          // it is not known whether the result is in the store
	Told            // the store has been told how the load ended, or will be told again
	End             // no caller waits any more, or the cache is closing
	kinds
)

// Left is what a load has left instead of a value.
type Left uint8

const (
	Failure    Left = iota // an error
	Result                 // its result, for callers that have waited
	Unreadable             // its result, but it is not known whether it has been invalidated
	Damaged                // its result, but the bytes are no value
	Unshared               // nothing: the result is for its own caller only
	Unknown                // something that only a later release understands
)

// Event is what has happened to a [Miss]. The comment of its Kind names the fields that are set.
type Event struct {
	Kind Kind
	Now  time.Duration // Granted: when the answer is looked at
	Sent time.Duration // when the answered request was sent
	Load ID
	Use  Use
	Mine bool // Value, Filled: the awaited load has made it, and it was not marked stale since
	Left Left
}

// Do is a set of things to do. The driver does them in this order.
type Do uint32

const (
	Seal          Do = 1 << iota // no caller joins the flight any more, and its lease is no longer renewed
	CancelLoad                   // the load is told to stop, and its result is not used
	EndTurn                      // the slot is given back
	Release                      // the lease is given up by its token; at least one try comes before what follows
	Fill                         // the result is stored
	Land                         // all waiting callers get the Landing
	Conclude                     // the store is told why there is no result
	ReleaseLater                 // the lease is given up in the background, because it may have been granted
	ConcludeLater                // the store is told in the background why there is no result
	Refresh                      // the value that is served is refreshed in the background
	LetGo                        // the refresh is given up unless a caller has joined it
	Follow                       // messages about the key are waited for, or the end of the awaited load's lease
	TakeTurn                     // a slot is taken
	Ask                          // the lease is asked for
	Load                         // the load is started, with the slot
	Renew                        // the lease is renewed from now on, until the load or the lease is over
)

// Landing is what the waiting callers get.
type Landing uint8

const (
	NoLanding      Landing = iota
	LandFound              // the stored value
	LandStale              // the stored value, which is stale
	LandMarker             // that each caller loads for itself
	LandTheirs             // the result of the awaited load, which isn't stored
	LandTheirError         // the error of the awaited load, or the stale value
	LandOwn                // the result of its own load
	LandOwnError           // the error of its own load, or the stale value
	LandRefused            // the error that there was no slot, or the stale value
	LandDown               // the error that the store can't be used, or the stale value
	LandOverdue            // the error that it has waited for too long, or the stale value
	LandEnded              // the error that it has ended: no caller waits, or the cache is closed
)

// Step takes an event and returns what to do. An event for which the state does not wait changes
// nothing: it belongs to a request, a load or a wait that is over.
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

// begun decides how a miss begins: under a claim, without the store, without the lease, or with a
// request for it.
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

// turned continues a miss that has got its slot, or has been refused one.
func (m *Miss) turned(e Event, do Do, next State) (Do, Landing) {
	switch e.Kind {
	case Turned:
		m.Turn, m.State = do != Load, next // the load takes the slot over, and gives it back when it returns, however late
		return do, 0
	case Refused:
		return m.land(0, LandRefused)
	}
	return 0, 0
}

// asking handles the answer to the request for the lease. If the lease is granted, the miss leads.
// If another load has it, the miss gives its slot back and follows. If the request replaced a
// look-up, a value or a missing answer takes the miss back to Begun: the value is handled as if it
// had been looked up, and after a missing answer a read may still work.
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
	case Unanswered: // the lease may have been granted, or may be granted by a late copy
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
		if m.Behind && e.Use != Nothing { // another process has refreshed it; but callers that have joined meanwhile may want a load
			m.Seen = e.Use
			return m.letGo(do)
		}
		return m.found(do, e, true)
	case Outcome:
		return m.noValue(m.endTurn(), e.Left)
	}
	return 0, 0
}

// granted handles a granted lease. If the lease has ended by now, because this process stood still,
// another load may have it: the miss releases it, in case it still exists, and asks again. If all
// callers have left, the lease is released, too.
func (m *Miss) granted(e Event) (Do, Landing) {
	switch {
	case m.Ended:
		return m.land(m.endTurn()|Release, LandEnded)
	case e.Now-e.Sent >= m.LeaseTTL:
		m.Restarts++
		return m.again(m.endTurn() | Release)
	}
	m.State, m.Turn = Leading, false
	m.Until = e.Sent + m.LeaseTTL // counted from before the request, so never later than in the store
	return Load | Renew, 0
}

// leading handles what happens while the load runs under the lease.
func (m *Miss) leading(e Event) (Do, Landing) {
	switch e.Kind {
	case Renewed:
		m.Until = e.Sent + m.LeaseTTL
	case Unrenewed:
		if e.Sent >= m.Until { // the lease may be gone, so it counts as gone
			return m.lose(), 0
		}
	case Gone: // invalidated or evicted: the load goes on for its callers, but is not stored
		return m.lose(), 0
	case Taken:
		if m.Claims { // a write isn't cancelled, because it may be half done
			return m.lose(), 0
		}
		// The callers can follow the other load, so this one isn't needed.
		m.Restarts++
		return m.again(m.lose() | CancelLoad)
	case Returned:
		m.State = Settling
		return Fill, 0
	case Unstorable, Failed:
		if m.Claims { // the caller of a write invalidates the key
			return m.alone(e)
		}
		if m.State = Settling; e.Kind == Failed {
			m.State = Failing
		}
		return Conclude, 0
	}
	return 0, 0
}

// lose notes that the lease is lost. The flight is sealed, because the load may be from before a
// change.
func (m *Miss) lose() Do {
	m.Until = 0
	return Seal
}

// settling handles the store's answer about the end of the load.
func (m *Miss) settling(e Event, landing Landing) (Do, Landing) {
	switch e.Kind {
	case Stored, Told:
		return m.land(0, landing)
	case Unsure: // if the result was not stored, waiting processes are told; if it was, the conclusion does nothing
		if m.Claims {
			return m.land(0, landing)
		}
		return m.land(ConcludeLater, landing)
	}
	return 0, 0
}

// following handles what happens to a miss that follows another load.
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

// found handles a stored value. The miss takes any fresh value. It also takes the value of the load
// for which it has waited, even if its TTL was so short that it is over. counts says whether an
// unusable value counts as a restart.
func (m *Miss) found(do Do, e Event, counts bool) (Do, Landing) {
	m.Seen = e.Use
	switch {
	case e.Use == Passing && m.Solo:
		return m.withoutLease(do)
	case e.Use == Passing:
		return m.land(do, LandMarker)
	case e.Use == Fresh, e.Mine && e.Use != Nothing:
		return m.land(do, LandFound)
	case e.Use == Meanwhile && m.Reads && !m.Soft: // served at once; its refresh runs in the background
		return m.land(do|Refresh, LandStale)
	case counts: // the value can't be used: ask for the lease again, which names it as seen
		m.Restarts++
	}
	return m.again(do)
}

// noValue handles the end of another load that has left no value.
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

// leaving ends a refresh that can't be done now, or continues it as a load if a caller has joined
// it.
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

// alone handles the end of a load without the lease. Its result is never stored.
func (m *Miss) alone(e Event) (Do, Landing) {
	switch e.Kind {
	case Returned, Unstorable:
		return m.land(0, LandOwn)
	case Failed:
		return m.land(0, LandOwnError)
	case Refused: // another load of the run has its slot, and there is no second one
		return m.land(0, LandRefused)
	}
	return 0, 0
}

// again asks for the lease again, unless that was in vain too often.
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

// withoutLease loads for the callers of this process only. The result is never stored, because the
// store can't tell whether the key was invalidated during the load.
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

// withoutStore continues without the store: with a stale value if one may be served, else as
// OnStoreDown says.
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

// letGo gives up a refresh that can't be done now, unless a caller has joined it.
func (m *Miss) letGo(do Do) (Do, Landing) {
	m.Behind = false
	if m.Ended {
		return m.land(do, LandEnded)
	}
	m.State = Leaving
	return do | LetGo, 0
}

// end handles that no caller waits any more, or that the cache is closing. A miss that has sent a
// request for the lease still waits for the answer, because a granted lease must be released. A
// miss that is telling the store how its load ended goes on with that.
func (m *Miss) end() (Do, Landing) {
	m.Ended = true
	switch m.State {
	case Begun, Queued, Following, Spared, Leaving:
		return m.land(m.endTurn(), LandEnded)
	case Leading:
		if m.Claims {
			return m.land(CancelLoad, LandEnded)
		}
		// The load was given up here and has not failed at the origin. So it leaves no outcome:
		// other processes that wait ask again, and one of them loads.
		return m.land(CancelLoad|Release, LandEnded)
	case Alone:
		return m.land(CancelLoad, LandEnded)
	}
	return 0, 0
}

// endTurn gives the slot back. A miss that waits for another load must not keep a slot, or all
// slots could be taken by misses that wait.
func (m *Miss) endTurn() Do {
	if !m.Turn {
		return 0
	}
	m.Turn = false
	return EndTurn
}

// land ends the miss.
func (m *Miss) land(do Do, landing Landing) (Do, Landing) {
	m.State = Landed
	return do | Land, landing
}
