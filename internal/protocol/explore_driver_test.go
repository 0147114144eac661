package protocol

// run is one step of the world: what a process does when an event happens. It does what a driver
// does around the real Miss.
type run struct {
	*scene
	world
	bad   string // the check that has failed
	notes []note // the lines for a diagram
	trace bool
}

func (r *run) fail(check string) {
	if r.bad == "" {
		r.bad = check
	}
}

// tell makes a miss take a step, and performs the actions that the step requests.
func (r *run) tell(p, i int, e Event) {
	f := &r.procs[p].flights[i]
	e.Now = at(r.now)
	was := f.m
	if r.tells != nil {
		r.tells[tellsOf(f, e.Kind)] = true
	}
	do, landing := f.m.Step(e)
	if r.trace {
		r.note(p, "f%d %v, %v -> %v: %v", i, was.State, e.Kind, f.m.State, do)
	}
	for d := Do(1); d <= do; d <<= 1 {
		if do&d != 0 {
			r.perform(p, i, d, landing)
		}
	}
	if e.Kind == Overdue && f.m.State != Landed {
		r.fail("waitsTooLong")
	}
	if e.Left == Unshared && f.m.State == Queued {
		r.fail("waitsForOthers")
	}
	if f.used && f.m.State == Landed {
		r.landed(p, i, do, landing)
		return
	}
	if f.m.Turn != (f.group != 0 && !f.load.turn) {
		r.fail("turnLost")
	}
	if f.m.Turn && f.m.State != Asking {
		r.fail("turnKept")
	}
	if f.m.Restarts > MaxRestarts && f.m.State == Queued {
		r.fail("restartedTooOften")
	}
	switch {
	case do&LetGo != 0 && f.members > 0 && !r.procs[p].closed:
		r.tell(p, i, Event{Kind: Wanted})
	case do&LetGo != 0:
		r.tell(p, i, Event{Kind: Unwanted})
	case do&TakeTurn != 0 && r.turns == 0:
		r.takeTurn(p, i, i)
	case do&Follow != 0 && f.box != message{}:
		m := f.box
		f.box = message{}
		r.follows(p, i, m)
	}
}

// landed performs the actions that follow when all waiting callers have their results.
func (r *run) landed(p, i int, do Do, landing Landing) {
	f := &r.procs[p].flights[i]
	was := *f
	*f = flight{}
	switch {
	case was.m.Claims && was.stored:
		// A flight that began in the meantime may have loaded without the lease, before the write.
		r.procs[p].open[0] = 0
		r.knows(p, since{all: was.load.read})
	case was.m.Claims:
		// Another load may have read the origin before the write, and may store what it has read.
		*f = flight{used: true, key: was.key, m: Miss{State: Landed}, load: was.load}
		token, _ := r.unused(r.scene)
		f.op = op{kind: command{kind: claim, load: token, version: f.load.read}, sent: r.now}
		r.procs[p].open[0] = 0
	case do&Refresh != 0:
		r.refreshBehind(p, was)
	case landing == LandMarker:
		r.loadApart(p, was, was.members)
	case landing == LandOwn && was.over == unshared && was.members > 0:
		was.m.Seen, was.seen, was.seenOf = Nothing, 0, 0
		r.loadApart(p, was, was.members-1)
	}
}

// loadApart lets each of these callers load for itself, because the result for which they have
// waited is for one caller only.
func (r *run) loadApart(p int, was flight, callers uint8) {
	pr := &r.procs[p]
	for range callers {
		if j := pr.room(); j >= 0 {
			pr.flights[j] = flight{
				used: true, key: was.key, members: 1, floor: was.floor, seen: was.seen,
				seenOf: was.seenOf,
				m: Miss{
					Config: r.config(), Role: Role{Solo: true, Apart: true}, Seen: was.m.Seen,
				},
			}
			r.tell(p, j, Event{Kind: Begin})
		}
	}
}

func (r *run) takeTurn(p, i, with int) {
	f := &r.procs[p].flights[i]
	f.wants, f.group = false, uint8(with)+1
	r.tell(p, i, Event{Kind: Turned})
}

func (r *run) perform(p, i int, d Do, landing Landing) {
	pr := &r.procs[p]
	f := &pr.flights[i]
	switch d {
	case Seal:
		r.seal(p, i)
		f.renews = false
	case CancelLoad:
		if !f.load.runs && !f.load.waits && !f.load.returned {
			r.fail("cancelsNothing")
		}
		if f.m.Claims && !f.m.Ended {
			r.fail("cancelsWrite")
		}
		if r.turns > 0 && f.load.runs { // the cancelled load has its slot until it returns
			pr.late++
		}
		r.endRenewal(f)
		f.load, f.group = loading{}, 0
	case TakeTurn:
		f.wants = true
	case EndTurn:
		f.group = 0
	case Release, ReleaseLater:
		r.send(command{kind: release, key: f.key, load: f.token})
	case Fill:
		if !f.load.leased {
			r.fail("fillsWithoutLease")
		}
		version := f.load.read
		if f.over == unshared {
			version = marker
		}
		f.op = op{
			kind: command{
				kind: fill, key: f.key, load: f.token, number: f.number, version: version,
			}, sent: r.now,
		}
	case Conclude:
		if f.m.Claims {
			r.fail("tellsOfWrite")
		}
		if c := r.conclusion(f); f.m.State == Landed {
			r.send(c)
		} else {
			f.op = op{kind: c, sent: r.now}
		}
	case ConcludeLater:
		r.send(r.conclusion(f))
	case Ask:
		if f.m.Apart {
			r.fail("asksApart")
		}
		f.token, _ = r.unused(r.scene)
		f.number, f.void, f.box = 0, false, message{}
		f.op = op{sent: r.now, kind: command{
			kind: lease, key: f.key, load: f.token, seen: f.seenOf, awaited: f.m.Awaited[0],
			waited: f.awaited,
		}}
	case Load:
		if r.hasOtherLoad(p, i) {
			f.load, f.group = loading{waits: true}, 0
		} else {
			r.begin(f)
		}
	case Renew:
		f.renews = true
	case Land:
		r.land(p, i, landing)
	}
}

// conclusion returns the command that tells the store of a load without a value.
func (r *run) conclusion(f *flight) command {
	over := f.over
	switch {
	case !f.load.returned:
		over = givenUp
	case over == noEnding:
		over = unstored
	}
	return command{
		kind: conclude, key: f.key, load: f.token, number: f.number, version: f.load.read,
		ending: over,
	}
}

// hasOtherLoad reports whether another load has the slot that a miss shares with its group.
func (r *run) hasOtherLoad(p, i int) bool {
	f := &r.procs[p].flights[i]
	for j := range r.procs[p].flights {
		if o := &r.procs[p].flights[j]; j != i && f.m.State == Alone && f.group != 0 &&
			o.group == f.group && o.load.turn {
			return true
		}
	}
	return false
}

// begin begins a load or a write. A load reads the origin now. A write reaches the origin later.
func (r *run) begin(f *flight) {
	if f.load.runs {
		r.fail("twoLoadsOfOne")
	}
	f.load = loading{
		runs: true, leased: f.m.State == Leading, fails: r.broken, read: r.origin[f.key],
		turn: true,
	}
	if f.m.Claims {
		f.load.read = 0
	}
	f.over = noEnding
	if f.members == 0 && !f.m.Behind {
		r.fail("loadsForNobody")
	}
	r.loads = min(r.loads+1, 9)
	if f.load.leased && !f.m.Claims { // a write may have lost its lease already
		r.beginsWithLease(f)
	}
}

// endRenewal stops the renewal of a lease. A renewal that is on its way may still arrive.
func (r *run) endRenewal(f *flight) {
	if f.renewal.kind.kind != noVerb && !f.renewal.applied {
		r.sendCopy(f.renewal.kind)
	}
	f.renewal, f.renews = op{}, false
}

// seal closes a flight to new callers.
func (r *run) seal(p, i int) {
	pr := &r.procs[p]
	if k := pr.flights[i].key; pr.open[k] == uint8(i)+1 {
		pr.open[k] = 0
	}
}

// land gives the result to all callers of a flight, checks the result, and seals the flight.
func (r *run) land(p, i int, landing Landing) {
	pr := &r.procs[p]
	f := &pr.flights[i]
	version, stale := f.seen, false
	switch landing {
	case LandFound:
	case LandStale:
		stale = true
	case LandTheirs, LandTheirError:
		version = f.theirs
	case LandOwn, LandOwnError:
		version = f.load.read
	case LandEnded:
		if f.members > 0 && !pr.closed {
			r.fail("abandonedToCaller")
		}
		version = 0
	default:
		version = 0
	}
	switch landing {
	case LandOwn, LandOwnError, LandRefused, LandEnded:
	default:
		if r.inShadow(p) {
			r.fail("answeredByCache")
		}
	}
	isError := landing == LandTheirError || landing == LandOwnError
	switch landing {
	case LandFound, LandStale, LandMarker, LandTheirs, LandOwn, LandEnded:
	default: // an error, or the stale value in its place
		if !f.m.Reads || f.m.Seen < OnError || f.m.Seen > Fresh {
			break
		}
		version, stale, isError = f.seen, true, false
	}
	if landing == LandTheirError && f.over == givenUp {
		r.fail("errorWithoutFailure")
	}
	if r.trace {
		r.note(p, "f%d lands: %v, version %d", i, landing, version)
	}
	if f.members > 0 && version > 0 {
		switch old := version < f.floor.all || !stale && version < f.floor.fresh; {
		case old && isError:
			r.fail("errorAfterRepair")
		case old:
			r.fail("olderThanTold")
		}
	}
	if (landing == LandOwn || landing == LandOwnError) && !f.load.returned {
		r.fail("lostToCaller")
	}
	if f.load.runs {
		r.fail("loadLeftBehind")
	}
	if f.group != 0 {
		r.fail("turnLost")
	}
	r.endRenewal(f)
	r.seal(p, i)
}

// answered gives a miss the answer to its request.
func (r *run) answered(p, i int) {
	f := &r.procs[p].flights[i]
	o := f.op
	if o.kind.kind != lease {
		f.op = op{}
	}
	switch a := o.reply; o.kind.kind {
	case look:
		r.looked(p, i, a)
	case claim:
		if f.m.State == Landed {
			f.op = op{kind: command{kind: release, load: o.kind.load}, sent: r.now}
			return
		}
		r.claims(p, i, o, true)
	case release, invalidate:
		r.withdrawn(p, i, true)
	case lease:
		unseen, closed := f.m.Unseen, r.procs[p].closed
		e := Event{Kind: a.kind, Sent: at(o.sent), Load: id(a.load)}
		switch a.kind {
		case Granted:
			f.number, f.ends = a.number, o.sent+leaseTicks
			f.op = op{}
			if unseen && closed {
				r.tell(p, i, Event{Kind: End})
			}
		case Value:
			f.op = op{}
			f.seen, f.seenOf = a.version, a.load
			e.Use = r.use(a.version, a.stale)
		case Outcome:
			f.op = op{}
			e.Left = r.theirs(f, a.version, a.ending)
		case Held:
			f.op = op{}
			f.awaited, f.timer = a.load, r.now+a.left
		case Unanswered:
			f.op = op{}
		}
		switch r.tell(p, i, e); {
		case unseen && a.kind == Value:
			r.looked(p, i, a)
		case unseen && closed && f.isUnderWay() && !f.m.Ended:
			r.tell(p, i, Event{Kind: End})
		}
	case fill:
		f.stored = a.kind == Stored
		r.tell(p, i, Event{Kind: Stored})
	case conclude:
		r.tell(p, i, Event{Kind: Told})
	}
}

func (r *run) theirs(f *flight, version uint8, e ending) Left {
	f.theirs = version
	switch e {
	case unstored:
		return Result
	case unshared:
		return Unshared
	}
	f.over = e
	return Failure
}

func (r *run) use(version uint8, stale bool) Use {
	if u := use(version, stale); u != Meanwhile || !r.onError {
		return u
	}
	return OnError
}

// looked continues after the look-up of the leading caller.
func (r *run) looked(p, i int, a reply) {
	f := &r.procs[p].flights[i]
	f.seen, f.seenOf = a.version, a.load
	if r.inShadow(p) {
		f.seen, f.m = 0, Miss{
			Config: r.config(), Role: Role{Own: r.use(a.version, a.stale) != Fresh},
		}
		f.m.Apart = !f.m.Own
		r.tell(p, i, Event{Kind: Begin})
		return
	}
	f.m = Miss{Config: r.config(), Role: Role{Reads: true}, Seen: r.use(a.version, a.stale)}
	switch f.m.Seen {
	case Fresh:
		r.land(p, i, LandFound)
		*f = flight{}
		return
	case Meanwhile:
		r.land(p, i, LandStale)
		was := *f
		*f = flight{}
		r.refreshBehind(p, was)
		return
	case Passing:
		// Each caller loads for itself. Only the leading caller asks for the lease, because the
		// next result may be for all callers again.
		was := *f
		r.seal(p, i)
		f.m.Reads, f.m.Solo, f.members = false, true, 1
		r.tell(p, i, Event{Kind: Begin})
		r.loadApart(p, was, was.members-1)
		return
	}
	r.tell(p, i, Event{Kind: Begin})
}

// inShadow reports whether the callers of a process must only get results of the process's own
// loads.
func (r *run) inShadow(p int) bool { return r.shadow && p == 1 }

// refreshBehind starts a refresh of the value that callers have got, unless the process is
// refreshing the key already.
func (r *run) refreshBehind(p int, f flight) {
	pr := &r.procs[p]
	for j := range pr.flights {
		if pr.flights[j].behind && pr.flights[j].key == f.key {
			return
		}
	}
	if j := pr.room(); j >= 0 {
		pr.flights[j] = flight{
			used: true, behind: true, key: f.key, floor: pr.told[f.key], seen: f.seen,
			seenOf: f.seenOf,
			m:      Miss{Config: r.config(), Role: Role{Behind: true}, Seen: f.m.Seen},
		}
		r.begins(&pr.flights[j])
		r.tell(p, j, Event{Kind: Begin})
	}
}

// begins records when a miss begins to wait.
func (r *run) begins(f *flight) {
	if r.longest > 0 {
		f.began = r.now
	}
}

// room returns a free place for a flight, or -1.
func (pr *process) room() int {
	for j := range pr.flights {
		if !pr.flights[j].used {
			return j
		}
	}
	return -1
}

// hears handles a message in a process. The process first forgets old knowledge, and then wakes
// flights.
func (r *run) hears(p int, m message) {
	pr := &r.procs[p]
	if m.tells == TellsChanged {
		pr.told[m.key].raise(m.since)
		pr.open[m.key] = 0
	}
	for i := range pr.flights {
		f := &pr.flights[i]
		switch {
		case f.key != m.key:
		case f.m.State == Asking && f.box == message{}:
			f.box = m
		case f.m.State == Following:
			r.follows(p, i, m)
		}
	}
}

// follows tells a following miss of a message.
func (r *run) follows(p, i int, m message) {
	f := &r.procs[p].flights[i]
	switch {
	case m.tells == TellsChanged:
		r.tell(p, i, Event{Kind: Changed})
	case m.again || m.tells == TellsReleased || m.load != f.m.Awaited[0]:
		r.tell(p, i, r.woken(f))
	case m.load != f.awaited:
		r.fail("anothersOutcome")
	case m.tells == TellsFilled:
		load, version, stale := m.load, m.version, false
		if r.large { // the value isn't in the message
			s := r.slots[f.key].At(at(r.now))
			load, version, stale = inFrame(s.Frame)
		}
		f.seen, f.seenOf = version, load
		r.tell(p, i,
			Event{Kind: Filled, Use: r.use(version, stale), Mine: load == m.load && !stale})
	default:
		r.tell(p, i, Event{Kind: Over, Left: r.theirs(f, m.version, m.ending)})
	}
}

// woken returns the event for a miss that has a reason to look again.
func (r *run) woken(f *flight) Event {
	if r.longest > 0 && r.now-f.began > r.longest {
		return Event{Kind: Overdue}
	}
	return Event{Kind: Woken}
}

// restored handles the moment when messages arrive again in a process. Some messages may have been
// lost.
func (r *run) restored(p int) {
	pr := &r.procs[p]
	pr.cut, pr.open = false, [maxKeys]uint8{}
	for k := range pr.told {
		pr.told[k].raise(r.made[k])
	}
	for k := range r.keys {
		r.hears(p, message{key: uint8(k), again: true})
	}
}
