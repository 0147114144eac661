package protocol

import (
	"testing"
	"time"
)

// TestMissByMissRule tests single steps of a miss. If one of these steps were different, callers,
// the origin or other processes would suffer. The explorer can't find such a change. It finds
// steps that break a promise in some order of events. A change of these steps breaks no promise in
// the explorer's world, because the callers or the store there make up for it, or because the cost
// isn't modelled.
func TestMissByMissRule(t *testing.T) {
	const ttl = tableTTL
	asking := Miss{State: Asking, Turn: true}
	following := Miss{State: Following, Awaited: id(7)}
	value := func(u Use) Event { return Event{Kind: Value, Use: u, Load: id(7)} }
	filled := func(u Use, mine bool) Event {
		return Event{Kind: Filled, Use: u, Mine: mine, Load: id(7)}
	}
	over := func(l Left) Event { return Event{Kind: Over, Left: l, Load: id(7)} }
	with := func(m Miss, set func(*Miss)) Miss { set(&m); return m }
	for _, c := range []struct {
		name    string
		m       Miss
		e       Event
		do      Do
		landing Landing
		state   State
	}{
		{
			"an event before the beginning starts nothing", Miss{}, Event{Kind: Woken}, 0,
			NoLanding, Begun,
		},
		{
			"a write renews the lease that it has claimed", Miss{Role: Role{Claims: true}},
			Event{Kind: Begin}, Load | Renew, NoLanding, Leading,
		},
		{
			"a write whose claim failed loads all the same",
			Miss{Role: Role{Claims: true}, Down: true}, Event{Kind: Begin}, Load, NoLanding, Alone,
		},
		{
			"who could not read the store doesn't ask it for a lease", Miss{Down: true},
			Event{Kind: Begin}, TakeTurn, NoLanding, Spared,
		},
		{
			"who was told to load alone doesn't ask for the lease", Miss{Role: Role{Apart: true}},
			Event{Kind: Begin}, TakeTurn, NoLanding, Spared,
		},
		{
			"a question in place of a look-up has a slot already", Miss{Unseen: true},
			Event{Kind: Begin}, Ask, NoLanding, Asking,
		},

		{
			"a value in place of a look-up is looked at like any other",
			with(asking, func(m *Miss) { m.Unseen = true }),
			value(Fresh), EndTurn, NoLanding, Begun,
		},
		{
			"a lease that was perhaps granted in place of a look-up is given back",
			with(asking, func(m *Miss) { m.Unseen = true }),
			Event{Kind: Unanswered}, EndTurn | ReleaseLater, NoLanding, Begun,
		},
		{
			"a held lease frees the slot for the load that is waited for", asking,
			Event{Kind: Held, Load: id(7)}, EndTurn | Follow, NoLanding, Following,
		},
		{
			"nobody follows another load for callers who have left",
			with(asking, func(m *Miss) { m.Ended = true }),
			Event{Kind: Held, Load: id(7)}, EndTurn | Land, LandEnded, Landed,
		},
		{
			"who loads for itself doesn't wait for another load",
			with(asking, func(m *Miss) { m.Solo = true }),
			Event{Kind: Held, Load: id(7)}, EndTurn | TakeTurn, NoLanding, Spared,
		},
		{
			"a refresh doesn't wait for that of another process",
			with(asking, func(m *Miss) { m.Behind = true }),
			Event{Kind: Held, Load: id(7)}, EndTurn | LetGo, NoLanding, Leaving,
		},
		{
			"who takes only its own load doesn't wait for another",
			with(asking, func(m *Miss) { m.Own = true }),
			Event{Kind: Held, Load: id(7)}, Load, NoLanding, Alone,
		},
		{
			"who takes only its own load takes no value",
			with(asking, func(m *Miss) { m.Own = true }),
			value(Fresh), Load, NoLanding, Alone,
		},
		{
			"who takes only its own load takes no error of another",
			with(asking, func(m *Miss) { m.Own = true }),
			Event{Kind: Outcome, Left: Failure}, Load, NoLanding, Alone,
		},
		{
			"who takes only its own load gives back a lease that was perhaps granted",
			with(asking, func(m *Miss) { m.Own = true }),
			Event{Kind: Unanswered}, ReleaseLater | Load, NoLanding, Alone,
		},
		{
			"a refresh ends if another process has refreshed",
			with(asking, func(m *Miss) { m.Behind = true }),
			value(Fresh), EndTurn | LetGo, NoLanding, Leaving,
		},
		{
			"a refresh that found an unusable value asks again",
			with(asking, func(m *Miss) { m.Behind = true }),
			value(Nothing), EndTurn | TakeTurn, NoLanding, Queued,
		},
		{
			"a grant that took longer than the lease is given back", asking,
			Event{Kind: Granted, Sent: 0, Now: ttl}, EndTurn | Release | TakeTurn, NoLanding,
			Queued,
		},
		{
			"a grant that nobody waits for is given back",
			with(asking, func(m *Miss) { m.Ended = true }),
			Event{Kind: Granted, Now: 1}, EndTurn | Release | Land, LandEnded, Landed,
		},

		{
			"a granted lease is renewed while the load runs", asking, Event{Kind: Granted, Now: 1},
			Load | Renew, NoLanding, Leading,
		},
		{
			"a result is stored", Miss{State: Leading, Until: ttl}, Event{Kind: Returned}, Fill,
			NoLanding, Settling,
		},
		{
			"a result that can't be stored is told to those who wait",
			Miss{State: Leading, Until: ttl}, Event{Kind: Unstorable}, Conclude, NoLanding,
			Settling,
		},
		{
			"a failure is told to those who wait", Miss{State: Leading, Until: ttl},
			Event{Kind: Failed}, Conclude, NoLanding, Failing,
		},
		{
			"a stored result is the answer", Miss{State: Settling}, Event{Kind: Stored}, Land,
			LandOwn, Landed,
		},
		{
			"a result that was told is the answer", Miss{State: Settling}, Event{Kind: Told}, Land,
			LandOwn, Landed,
		},
		{
			"a failure that was told is the answer", Miss{State: Failing}, Event{Kind: Told}, Land,
			LandOwnError, Landed,
		},
		{
			"a load without the lease answers its callers", Miss{State: Alone},
			Event{Kind: Returned}, Land, LandOwn, Landed,
		},
		{
			"a result that can't be stored answers them, too", Miss{State: Alone},
			Event{Kind: Unstorable}, Land, LandOwn, Landed,
		},
		{
			"a load without the lease that fails answers its callers", Miss{State: Alone},
			Event{Kind: Failed}, Land, LandOwnError, Landed,
		},
		{
			"a wanted refresh asks again", Miss{State: Leaving}, Event{Kind: Wanted}, TakeTurn,
			NoLanding, Queued,
		},
		{
			"a wanted refresh doesn't ask a store that is down", Miss{State: Leaving, Down: true},
			Event{Kind: Wanted}, TakeTurn, NoLanding, Spared,
		},
		{
			"a write that lost its lease is not cancelled, for it may be half done",
			Miss{State: Leading, Until: ttl, Role: Role{Claims: true}},
			Event{Kind: Taken}, Seal, NoLanding, Leading,
		},
		{
			"a load whose lease another has is cancelled", Miss{State: Leading, Until: ttl},
			Event{Kind: Taken}, Seal | CancelLoad | TakeTurn, NoLanding, Queued,
		},
		{
			"a write that failed tells only its caller",
			Miss{State: Leading, Until: ttl, Role: Role{Claims: true}},
			Event{Kind: Failed}, Land, LandOwnError, Landed,
		},
		{
			"a write that was perhaps stored leaves nothing to conclude",
			Miss{State: Settling, Role: Role{Claims: true}},
			Event{Kind: Unsure}, Land, LandOwn, Landed,
		},
		{
			"a result that was perhaps not stored wakes those who wait", Miss{State: Settling},
			Event{Kind: Unsure}, ConcludeLater | Land, LandOwn, Landed,
		},

		{"who loads for itself takes no mark as its answer", with(following, func(m *Miss) {
			m.Solo = true
		}), filled(Passing, false), TakeTurn, NoLanding, Spared},
		{"who loads for itself takes a value that can be shared", with(following, func(m *Miss) {
			m.Solo = true
		}), filled(Fresh, false), Land, LandFound, Landed},
		{
			"a mark sends all callers to load for themselves", following, filled(Passing, false),
			Land, LandMarker, Landed,
		},
		{
			"a fresh value of any load is the answer", following, filled(Fresh, false), Land,
			LandFound, Landed,
		},
		{
			"a value of the awaited load is the answer, even if its TTL is over", following,
			filled(Shown, true), Land, LandFound, Landed,
		},
		{
			"a value of another load that is stale is no answer", following, filled(Shown, false),
			TakeTurn, NoLanding, Queued,
		},
		{
			"bytes that are no value are no answer, whoever stored them", following,
			filled(Nothing, true), TakeTurn, NoLanding, Queued,
		},
		{
			"callers who take stale values get one and don't wait for its refresh",
			with(following, func(m *Miss) { m.Reads = true }),
			filled(Meanwhile, false), Refresh | Land, LandStale, Landed,
		},
		{
			"callers of Refresh get no stale value", following,
			filled(Meanwhile, false), TakeTurn, NoLanding, Queued,
		},
		{
			"with SoftTimeout callers wait for a newer value first",
			with(following, func(m *Miss) { m.Reads, m.Soft = true, true }),
			filled(Meanwhile, false), TakeTurn, NoLanding, Queued,
		},
		{
			"a value for errors only is not served while the load may succeed",
			with(following, func(m *Miss) { m.Reads = true }),
			filled(OnError, false), TakeTurn, NoLanding, Queued,
		},

		{
			"the failure of the awaited load is the answer", following, over(Failure), Land,
			LandTheirError, Landed,
		},
		{
			"the result of the awaited load is the answer, even if it was not stored", following,
			over(Result), Land, LandTheirs, Landed,
		},
		{
			"after an outcome that can't be read each process loads for itself", following,
			over(Damaged), TakeTurn, NoLanding, Spared,
		},
		{
			"after a result for one caller each process loads for itself", following,
			over(Unshared), TakeTurn, NoLanding, Spared,
		},
		{
			"who waited for too long gets an error", following, Event{Kind: Overdue}, Land,
			LandOverdue, Landed,
		},
		{"nobody asks for a lease for callers who have left", with(following, func(m *Miss) {
			m.Ended = true
		}), Event{Kind: Woken}, Land, LandEnded, Landed},
		{
			"two restarts ask again", with(following, func(m *Miss) {
				m.Restarts = MaxRestarts - 1
			}), Event{Kind: Changed}, TakeTurn, NoLanding, Queued,
		},
		{"the third restart loads without the lease", with(following, func(m *Miss) {
			m.Restarts = MaxRestarts
		}), Event{Kind: Changed}, TakeTurn, NoLanding, Spared},

		{
			"while the store is down a value for errors is served",
			with(asking, func(m *Miss) { m.Reads, m.Seen = true, OnError }),
			Event{Kind: Unanswered}, ReleaseLater | EndTurn | Land, LandDown, Landed,
		},
		{
			"while the store is down a fresh value is served",
			with(asking, func(m *Miss) { m.Reads, m.Seen = true, Fresh }),
			Event{Kind: Unanswered}, ReleaseLater | EndTurn | Land, LandDown, Landed,
		},
		{
			"while the store is down a value whose windows are over is not served",
			with(asking, func(m *Miss) { m.Reads, m.Seen = true, Shown }),
			Event{Kind: Unanswered}, ReleaseLater | Load, NoLanding, Alone,
		},
		{
			"while the store is down a mark is not served",
			with(asking, func(m *Miss) { m.Reads, m.Seen = true, Passing }),
			Event{Kind: Unanswered}, ReleaseLater | Load, NoLanding, Alone,
		},
		{
			"while the store is down callers of Refresh get no old value",
			with(asking, func(m *Miss) { m.Seen = OnError }),
			Event{Kind: Unanswered}, ReleaseLater | Load, NoLanding, Alone,
		},
		{
			"with FailClosed nothing is loaded while the store is down",
			with(asking, func(m *Miss) { m.FailClosed = true }),
			Event{Kind: Unanswered}, ReleaseLater | EndTurn | Land, LandDown, Landed,
		},
		{
			"a refresh doesn't go on without the store",
			with(asking, func(m *Miss) { m.Behind = true }),
			Event{Kind: Unanswered}, ReleaseLater | EndTurn | LetGo, NoLanding, Leaving,
		},

		{
			"an end before the first step ends at once", Miss{}, Event{Kind: End}, Land, LandEnded,
			Landed,
		},
		{
			"an end while nobody knows whether a refresh is wanted ends at once",
			Miss{State: Leaving}, Event{Kind: End}, Land, LandEnded, Landed,
		},
		{
			"an end of a wait for a slot to ask ends at once", Miss{State: Queued},
			Event{Kind: End}, Land, LandEnded, Landed,
		},
		{
			"an end of a wait for another load ends at once", following, Event{Kind: End}, Land,
			LandEnded, Landed,
		},
		{
			"an end of a wait for a slot ends at once", Miss{State: Spared}, Event{Kind: End}, Land,
			LandEnded, Landed,
		},
		{
			"an end waits for the answer about the lease, so that none stays behind", asking,
			Event{Kind: End}, 0, NoLanding, Asking,
		},
		{
			"an end cancels the load and gives the lease back", Miss{State: Leading, Until: ttl},
			Event{Kind: End}, CancelLoad | Release | Land, LandEnded, Landed,
		},
		{
			"an end of a write leaves the lease to the writer",
			Miss{State: Leading, Until: ttl, Role: Role{Claims: true}}, Event{Kind: End},
			CancelLoad | Land, LandEnded, Landed,
		},
		{
			"an end cancels a load without the lease", Miss{State: Alone}, Event{Kind: End},
			CancelLoad | Land, LandEnded, Landed,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.m
			m.LeaseTTL = ttl
			do, landing := m.Step(c.e)
			if do != c.do || landing != c.landing || m.State != c.state {
				t.Errorf("does %v, lands %v, is %v; want %v, %v, %v", do, landing, m.State, c.do,
					c.landing, c.state)
			}
		})
	}
}

// TestRestartsAreCounted: each event that makes a miss ask again counts as a restart, so that no
// key keeps a caller waiting for ever. A wake-up without news, and an old value in a message, don't
// count.
func TestRestartsAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		state State
		e     Event
		more  uint8
	}{
		"a change":                          {Following, Event{Kind: Changed}, 1},
		"a load that left nothing":          {Following, Event{Kind: Over, Left: Unknown}, 1},
		"a value that can't be used":        {Asking, Event{Kind: Value, Use: Nothing}, 1},
		"a lease that was lost to another":  {Leading, Event{Kind: Taken}, 1},
		"a grant that came too late":        {Asking, Event{Kind: Granted, Now: tableTTL}, 1},
		"a wake-up that says nothing":       {Following, Event{Kind: Woken}, 0},
		"a value of a message, that is old": {Following, Event{Kind: Filled, Use: Nothing}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := Miss{State: c.state, Turn: c.state == Asking, Until: time.Second}
			m.LeaseTTL = tableTTL
			m.Step(c.e)
			if m.Restarts != c.more || m.State != Queued {
				t.Errorf("%d restarts in state %v, want %d in %v", m.Restarts, m.State, c.more,
					Queued)
			}
		})
	}
}

// TestLeaseIsCountedFromItsRequest: a lease is counted from the time when the request or the
// renewal was sent. A renewal without an answer ends the lease only if it was sent at the end of
// the lease or later.
func TestLeaseIsCountedFromItsRequest(t *testing.T) {
	m := Miss{State: Asking, Turn: true}
	m.LeaseTTL = tableTTL
	m.Step(Event{Kind: Granted, Sent: time.Second, Now: 3 * time.Second})
	if want := tableTTL + time.Second; m.Until != want || m.State != Leading || m.Turn {
		t.Fatalf("the lease ends at %v in state %v, want %v and %v", m.Until, m.State, want,
			Leading)
	}
	m.Step(Event{Kind: Renewed, Sent: 4 * time.Second, Now: 6 * time.Second})
	until := tableTTL + 4*time.Second
	if m.Until != until {
		t.Fatalf("the renewed lease ends at %v, want %v", m.Until, until)
	}
	if do, _ := m.Step(Event{Kind: Unrenewed, Sent: until - 1}); do != 0 || m.Until != until {
		t.Errorf("an unanswered renewal before the end does %v", do)
	}
	if do, _ := m.Step(Event{Kind: Unrenewed, Sent: until}); do != Seal || m.Until != 0 {
		t.Errorf("an unanswered renewal at the end does %v, and the lease ends at %v; want %v and none",
			do, m.Until, Seal)
	}
}

// TestStepsThatFollow tests steps that depend on an earlier event.
func TestStepsThatFollow(t *testing.T) {
	for name, c := range map[string]struct {
		m       Miss
		events  []Event
		do      Do // the actions that the last event requests
		landing Landing
		state   State
	}{
		"a slot to ask is given back when another load has the lease": {
			Miss{State: Queued}, []Event{{Kind: Turned}, {Kind: Held, Load: id(7)}},
			EndTurn | Follow, NoLanding, Following,
		},
		"a load gives its slot back by itself": {
			Miss{State: Spared}, []Event{{Kind: Turned}, {Kind: End}}, CancelLoad | Land, LandEnded,
			Landed,
		},
		"a grant that comes after the last caller has left is given back": {
			Miss{State: Asking, Turn: true}, []Event{{Kind: End}, {Kind: Granted, Now: 1}},
			EndTurn | Release | Land, LandEnded, Landed,
		},
		"a refresh that a caller waits for waits for another load": {
			Miss{State: Asking, Turn: true, Role: Role{Behind: true}},
			[]Event{
				{Kind: Held, Load: id(7)}, {Kind: Wanted}, {Kind: Turned},
				{Kind: Held, Load: id(7)},
			}, EndTurn | Follow, NoLanding, Following,
		},
		"a refresh that a caller waits for loads without the store that is down": {
			Miss{State: Asking, Turn: true, Role: Role{Behind: true}},
			[]Event{{Kind: Unanswered}, {Kind: Wanted}}, TakeTurn, NoLanding, Spared,
		},
		"a stale value that a message brought is served when the store is down": {
			Miss{State: Following, Awaited: id(7), Role: Role{Reads: true}},
			[]Event{{Kind: Filled, Use: OnError}, {Kind: Turned}, {Kind: Unanswered}},
			ReleaseLater | EndTurn | Land, LandDown, Landed,
		},
		"a stale value that another refresh brought is served when the store is down": {
			Miss{State: Asking, Turn: true, Role: Role{Behind: true, Reads: true}},
			[]Event{
				{Kind: Value, Use: OnError}, {Kind: Wanted}, {Kind: Turned}, {Kind: Unanswered},
			}, ReleaseLater | EndTurn | Land, LandDown, Landed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := c.m
			m.LeaseTTL = tableTTL
			var do Do
			var landing Landing
			for _, e := range c.events {
				do, landing = m.Step(e)
			}
			if do != c.do || landing != c.landing || m.State != c.state {
				t.Errorf("does %v, lands %v, is %v; want %v, %v, %v", do, landing, m.State, c.do,
					c.landing, c.state)
			}
		})
	}
}
