package protocol

import (
	"fmt"
	"slices"
)

// event is an event of a flight, of a process or of another part of the world.
type event struct{ what, p, i uint8 }

const (
	call       uint8 = iota
	callUnseen       // a call that asks for the lease in place of a look-up
	updating
	joining // a caller joins a refresh
	leave
	leaveReturned // the last caller leaves, and the load has returned because of this
	turn
	refuse
	takesEffect
	reach  // the store carries out the command of a flight
	repeat // a copy of the command stays on its way
	arrives
	lose // the command or its answer is lost
	renewing
	reachRenewal
	replyRenewal
	loseRenewal
	load
	loadUnstorable
	loadUnshared
	lateReturn
	timeout
	hear
	hearTwice
	loseMessage
	cut
	restore
	crash
	closing
	closingReturned
	arrive // a command on its way reaches the store
	evictValue
	evictLease
	tick
	write
	reachWrite
	replyWrite
	loseWrite
	whats
)

var whatNames = [whats]string{
	"call", "callUnseen", "updating", "joining", "leave", "leaveReturned", "turn", "refuse",
	"takesEffect", "reach", "repeat", "reply", "lose", "renewing", "reachRenewal", "replyRenewal",
	"loseRenewal",
	"load", "loadUnstorable", "loadUnshared", "lateReturn", "timeout", "hear", "hearTwice",
	"loseMessage", "cut", "restore", "crash", "closing", "closingReturned",
	"arrive", "evictValue", "evictLease", "tick", "write", "reachWrite", "replyWrite", "loseWrite",
}

func (e event) String() string { return fmt.Sprintf("%s.%d.%d", whatNames[e.what], e.p, e.i) }

// steps calls can for each event that can happen in a world. optional says that the event may also
// never happen.
func (s *scene) steps(w *world, can func(e event, optional bool)) {
	b := &w.left
	for p := range s.all(w) {
		pr := &w.procs[p]
		on := func(what uint8, i int, optional bool) {
			can(event{what, uint8(p), uint8(i)}, optional)
		}
		if pr.dead {
			continue
		}
		if b.calls > 0 && !pr.closed {
			for k := range s.keys {
				if s.batch { // the process makes one batch at a time
					if pr.flights == [maxFlights]flight{} {
						on(call, k, true)
					}
					break
				}
				if pr.open[k] != 0 && pr.flights[pr.open[k]-1].members < s.together ||
					pr.open[k] == 0 && pr.room() >= 0 {
					on(call, k, true)
				}
				if b.unseen > 0 && pr.open[k] == 0 && pr.room() >= 0 &&
					(s.turns == 0 || pr.slots() < s.turns) {
					on(callUnseen, k, true)
				}
			}
		}
		if b.updates > 0 && !pr.closed && pr.room() >= 0 {
			on(updating, 0, true)
		}
		for i := range pr.flights {
			if f := &pr.flights[i]; f.used {
				s.flightSteps(w, pr, f, func(what uint8, optional bool) { on(what, i, optional) })
			}
		}
		if pr.late > 0 {
			on(lateReturn, 0, false)
		}
		if pr.inbox[0] != (message{}) {
			on(hear, 0, false)
			if b.twice > 0 {
				on(hearTwice, 0, true)
			}
			if b.gone > 0 {
				on(loseMessage, 0, true)
			}
		}
		if b.cuts > 0 && !pr.cut {
			on(cut, 0, true)
		}
		if pr.cut {
			on(restore, 0, false)
		}
		if b.crashes > 0 {
			on(crash, 0, true)
		}
		if b.closes > 0 && !pr.closed {
			on(closing, 0, true)
			if pr.loads() {
				on(closingReturned, 0, true)
			}
		}
	}
	for i, c := range w.net {
		if c != (command{}) {
			can(event{arrive, 0, uint8(i)}, c.optional)
		}
	}
	for k := range s.keys {
		if slot := &w.slots[k]; b.evictions > 0 {
			if slot.Frame != "" {
				can(event{evictValue, 0, uint8(k)}, true)
			}
			if slot.Lease.Until > 0 || slot.Record.Until > 0 {
				can(event{evictLease, 0, uint8(k)}, true)
			}
		}
	}
	if b.ticks > 0 {
		can(event{what: tick}, true)
	}
	s.writerSteps(w, can)
}

func (s *scene) flightSteps(w *world, pr *process, f *flight, can func(what uint8, optional bool)) {
	b := &w.left
	if b.leaves > 0 && f.members > 0 && f.isUnderWay() {
		can(leave, true)
		if f.members == 1 && f.load.runs {
			can(leaveReturned, true)
		}
	}
	if b.joins > 0 && f.behind && !pr.closed && f.floor == pr.told[f.key] && !f.old &&
		(f.m.State < Leading || f.m.Until > 0) {
		can(joining, true)
	}
	switch f.m.State {
	case Queued, Spared:
		if f.wants {
			s.turnSteps(pr, b, can)
		}
	case Alone:
		if f.load.waits {
			s.turnSteps(pr, b, can)
		}
	case Following:
		if w.now >= f.timer || pr.cut {
			can(timeout, false)
		}
	}
	if o := &f.op; o.kind.kind != noVerb {
		switch {
		case !o.applied:
			can(reach, false)
			if b.again > 0 && o.kind.kind != look {
				can(repeat, true)
			}
		case s.batch && pr.isHalfAsked(f):
		default:
			can(arrives, false)
		}
		if b.lost > 0 && (!s.batch || o.kind.kind == lease && !o.applied) {
			can(lose, true)
		}
	}
	switch o := &f.renewal; {
	case o.kind.kind != noVerb && !o.applied:
		can(reachRenewal, false)
		if b.lost > 0 {
			can(loseRenewal, true)
		}
	case o.kind.kind != noVerb:
		can(replyRenewal, false)
		if b.lost > 0 {
			can(loseRenewal, true)
		}
	case f.renews && f.load.runs && b.renewals > 0 && w.now > 0:
		can(renewing, true)
	}
	if !f.load.runs {
		return
	}
	if f.load.read == 0 {
		can(takesEffect, f.load.fails)
	}
	if f.load.fails || f.load.read > 0 {
		can(load, false)
	}
	if f.load.fails || f.load.read == 0 {
		return
	}
	if b.unstorable > 0 {
		can(loadUnstorable, true)
	}
	if b.unshared > 0 && !f.m.Claims {
		can(loadUnshared, true)
	}
}

func (s *scene) turnSteps(pr *process, b *budget, can func(what uint8, optional bool)) {
	switch {
	case pr.slots() < s.turns:
		can(turn, false)
	case b.refusals > 0:
		can(refuse, true)
	}
}

// slots returns how many slots of a process are in use.
func (pr *process) slots() int {
	n := int(pr.late)
	for i := range pr.flights {
		f := &pr.flights[i]
		first := f.group != 0
		for j := range i {
			first = first && pr.flights[j].group != f.group
		}
		if first {
			n++
		}
	}
	return n
}

// isHalfAsked reports whether the store has yet to carry out the flight's request, or a request
// that was sent together with it.
func (pr *process) isHalfAsked(f *flight) bool {
	for i := range pr.flights {
		if o := &pr.flights[i]; o.op.kind.kind == f.op.kind.kind && o.op.sent == f.op.sent &&
			o.group == f.group && !o.op.applied {
			return true
		}
	}
	return false
}

// do carries out an event.
func (r *run) do(e event) {
	p, i := int(e.p), int(e.i)
	pr := &r.procs[p]
	f := &pr.flights[min(i, maxFlights-1)]
	b := &r.left
	switch e.what {
	case call:
		b.calls--
		r.call(p, i)
	case callUnseen:
		b.calls--
		b.unseen--
		r.callUnseen(p, i)
	case joining:
		b.joins--
		f.members++
	case leave, leaveReturned:
		b.leaves--
		if e.what == leaveReturned {
			r.returns(f)
			f.over = givenUp
		}
		if f.members--; f.members == 0 {
			r.seal(p, i)
			if !f.m.Ended {
				r.tell(p, i, Event{Kind: End})
			}
		}
	case updating:
		b.updates--
		r.update(p)
	case turn, refuse:
		if e.what == refuse {
			b.refusals--
		}
		for j := range pr.flights { // a batch takes one slot for all its flights that want one
			if o := &pr.flights[j]; o.used &&
				(j == i || r.batch && o.m.State == f.m.State && f.m.State == Queued) && o != f {
				r.turned(p, j, i, e.what == turn)
			}
		}
		r.turned(p, i, i, e.what == turn)
	case takesEffect:
		r.origin[f.key]++
		f.load.read = r.origin[f.key]
	case repeat:
		b.again--
		r.sendCopy(f.op.kind)
	case reach:
		f.op.reply = r.apply(f.op.kind)
		f.op.applied = true
	case arrives:
		var with []int
		for j := range pr.flights {
			o := &pr.flights[j]
			both := f.op.kind.kind == lease && o.op.kind.kind == lease && o.group == f.group
			if j == i || r.batch && both && o.op.applied {
				with = append(with, j)
			}
		}
		// The flight that is granted the lease goes first, so that its load has the slot.
		if len(with) == 2 && pr.flights[with[1]].op.reply.kind == Granted {
			slices.Reverse(with)
		}
		for _, j := range with {
			r.answered(p, j)
		}
	case lose:
		b.lost--
		r.lose(p, i)
	case renewing:
		b.renewals--
		f.renewal = op{
			kind: command{kind: renew, key: f.key, load: f.token, number: f.number}, sent: r.now,
		}
	case reachRenewal:
		f.renewal.reply = r.apply(f.renewal.kind)
		f.renewal.applied = true
		if f.renewal.reply.kind == Renewed {
			f.ends = max(f.ends, f.renewal.sent+leaseTicks)
		}
	case replyRenewal:
		o := f.renewal
		f.renewal = op{}
		token := f.token
		f.old = f.old || o.reply.kind != Renewed
		r.tell(p, i, Event{Kind: o.reply.kind, Sent: at(o.sent)})
		if o.reply.kind == Taken && f.load.runs && f.load.leased && f.token == token &&
			!f.m.Claims {
			r.fail("loadsBesideHolder")
		}
	case loseRenewal:
		b.lost--
		o := f.renewal
		f.renewal = op{}
		r.sendCopy(o.kind)
		f.old = f.old || o.sent >= f.ends
		r.tell(p, i, Event{Kind: Unrenewed, Sent: at(o.sent)})
	case load, loadUnstorable, loadUnshared:
		leased := f.load.leased
		r.loadEnds(p, i, e.what)
		for j := range pr.flights {
			if o := &pr.flights[j]; r.batch && j != i && o.load.runs && o.load.leased == leased {
				r.loadEnds(p, j, load)
			}
		}
	case lateReturn:
		pr.late--
	case timeout:
		r.tell(p, i, r.woken(f))
	case hear, hearTwice, loseMessage:
		m := pr.inbox[0]
		if e.what == hearTwice {
			b.twice--
		} else {
			copy(pr.inbox[:], pr.inbox[1:])
			pr.inbox[len(pr.inbox)-1] = message{}
		}
		if e.what == loseMessage {
			b.gone--
		} else {
			r.hears(p, m)
		}
	case cut:
		b.cuts--
		pr.cut, pr.inbox = true, [len(pr.inbox)]message{}
	case restore:
		r.restored(p)
	case crash:
		b.crashes--
		r.crash(p)
	case closing, closingReturned:
		b.closes--
		pr.closed = true
		for j := range pr.flights {
			if e.what == closingReturned && pr.flights[j].load.runs {
				r.returns(&pr.flights[j])
				pr.flights[j].over = givenUp
			}
			if pr.flights[j].isUnderWay() && !pr.flights[j].m.Ended {
				r.tell(p, j, Event{Kind: End})
			}
		}
	default:
		r.doElsewhere(e)
	}
}

func (r *run) doElsewhere(e event) {
	b := &r.left
	switch e.what {
	case arrive:
		c := r.net[e.i]
		r.net[e.i] = command{}
		before := r.slots[c.key]
		r.apply(c)
		r.voids(c.key, before)
	case evictValue:
		b.evictions--
		s := &r.slots[e.i]
		s.Frame, s.Until = "", 0
	case evictLease:
		b.evictions--
		before := r.slots[e.i]
		r.slots[e.i].Lease, r.slots[e.i].Record = Lease{}, Record{}
		r.voids(e.i, before)
	case tick:
		if b.ticks > 0 { // 0: the clock ticks because no other event must happen
			b.ticks--
		}
		r.now++
		for k := range r.slots {
			r.slots[k] = r.slots[k].At(at(r.now))
		}
	case write:
		b.writes--
		r.writes(verb(e.i))
	case reachWrite:
		r.writer.op.reply = r.apply(r.writer.op.kind)
		r.writer.op.applied = true
	case replyWrite:
		r.wrote(true)
	case loseWrite:
		b.lost--
		r.sendCopy(r.writer.op.kind)
		r.wrote(false)
	}
}

func (r *run) call(p, key int) {
	pr := &r.procs[p]
	if n := pr.open[key]; n != 0 {
		f := &pr.flights[n-1]
		if f.old {
			r.fail("joinsOld")
		}
		f.members++
		f.floor.raise(pr.told[key])
		return
	}
	for k := range r.keys {
		if k != key && !r.batch {
			continue
		}
		i := pr.room()
		pr.open[k] = uint8(i) + 1
		pr.flights[i] = flight{
			used: true, key: uint8(k), members: 1, floor: pr.told[k],
		}
		r.begins(&pr.flights[i])
		r.looksUp(p, i)
	}
}

// looksUp lets the leading caller look the value up.
func (r *run) looksUp(p, i int) {
	f := &r.procs[p].flights[i]
	f.op = op{kind: command{kind: look, key: f.key}, sent: r.now}
	if r.quickLook { // nothing can happen during the look-up
		a := r.apply(f.op.kind)
		f.op = op{}
		r.looked(p, i, a)
	}
}

// callUnseen is a call that has a slot and asks for the lease in place of a look-up.
func (r *run) callUnseen(p, key int) {
	pr := &r.procs[p]
	i := pr.room()
	pr.open[key] = uint8(i) + 1
	pr.flights[i] = flight{
		used: true, key: uint8(key), members: 1, floor: pr.told[key], group: uint8(i) + 1,
		m: Miss{Config: r.config(), Role: Role{Reads: true}, Unseen: true},
	}
	r.begins(&pr.flights[i])
	r.tell(p, i, Event{Kind: Begin})
}

func (r *run) lose(p, i int) {
	f := &r.procs[p].flights[i]
	o := f.op
	f.op = op{}
	switch o.kind.kind {
	case look:
		f.m = Miss{Config: r.config(), Role: Role{Reads: true}, Down: true}
		if r.inShadow(p) {
			f.m = Miss{Config: r.config(), Role: Role{Apart: true}}
		}
		r.tell(p, i, Event{Kind: Begin})
	case lease:
		r.sendCopy(o.kind)
		if r.batch { // the answers to the whole batch come together
			f.op, f.op.applied, f.op.reply = o, true, reply{kind: Unanswered}
			return
		}
		unseen := f.m.Unseen
		if r.tell(p, i, Event{Kind: Unanswered}); unseen {
			r.looksUp(p, i)
		}
	case fill:
		r.sendCopy(o.kind)
		if f.m.Claims {
			r.tell(p, i, Event{Kind: Stored})
			return
		}
		r.tell(p, i, Event{Kind: Unsure})
	case claim, release:
		r.sendCopy(o.kind)
		if f.m.State == Landed {
			f.op = op{kind: command{kind: invalidate, version: f.load.read}, sent: r.now}
			return
		}
		r.claims(p, i, o, false)
	case invalidate:
		r.sendCopy(o.kind)
		r.withdrawn(p, i, false)
	case conclude: // the driver tells the store again in the background
		r.send(o.kind)
		r.tell(p, i, Event{Kind: Told})
	}
}

// turned gives a flight a slot, or refuses it.
func (r *run) turned(p, i, with int, is bool) {
	f := &r.procs[p].flights[i]
	switch {
	case !is:
		f.wants, f.load.waits = false, false
		r.tell(p, i, Event{Kind: Refused})
	case f.load.waits:
		f.group = uint8(with) + 1
		r.begin(f)
	default:
		r.takeTurn(p, i, with)
	}
}

func (r *run) loadEnds(p, i int, how uint8) {
	f := &r.procs[p].flights[i]
	r.returns(f)
	kind := Returned
	switch {
	case f.load.fails:
		f.over, kind = failure, Failed
	case how == loadUnstorable:
		r.left.unstorable--
		f.over, kind = unstored, Unstorable
	case how == loadUnshared:
		r.left.unshared--
		if f.over = unshared; !r.remembered {
			kind = Unstorable
		}
	}
	r.tell(p, i, Event{Kind: kind})
}

// returns lets a load return. The load gives its slot back.
func (r *run) returns(f *flight) {
	r.endRenewal(f)
	f.load.runs, f.load.returned, f.load.turn, f.group = false, true, false, 0
}

// loads reports whether a load runs in the process.
func (pr *process) loads() bool {
	return slices.ContainsFunc(pr.flights[:], func(f flight) bool { return f.load.runs })
}

func (r *run) crash(p int) {
	pr := &r.procs[p]
	for i := range pr.flights {
		for _, o := range []op{pr.flights[i].op, pr.flights[i].renewal} {
			if o.kind.kind != noVerb && !o.applied {
				r.sendCopy(o.kind)
			}
		}
	}
	if p == 0 {
		if o := r.writer.op; o.kind.kind != noVerb && !o.applied {
			r.sendCopy(o.kind)
		}
		r.writer = writer{}
	}
	*pr = process{dead: true}
}
