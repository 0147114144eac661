package protocol

const leaseTicks = 2 // how many ticks a lease lasts

func (s *scene) config() Config {
	return Config{LeaseTTL: at(leaseTicks), FailClosed: s.failClosed}
}

// send puts a command on its way, which will arrive at some time.
func (r *run) send(c command) { r.put(c) }

// sendCopy leaves a copy of a command on its way, for which no driver waits any longer. The copy
// may arrive or not.
func (r *run) sendCopy(c command) {
	if c.kind != look {
		c.optional = true
		r.put(c)
	}
}

func (r *run) put(c command) {
	for i := range r.net {
		if r.net[i] == c {
			return
		}
		if r.net[i] == (command{}) {
			r.net[i] = c
			return
		}
	}
	r.fail("tooManyCommands")
}

// apply lets the store execute a command, and publishes the message about it.
func (r *run) apply(c command) (a reply) {
	slot := &r.slots[c.key]
	before := slot.At(at(r.now))
	_, number := r.unused(r.scene)
	tells := TellsNothing
	vouches := since{all: c.version}
	switch c.kind {
	case look:
		a.load, a.version, a.stale = inFrame(before.Frame)
	case lease:
		a = r.ask(slot, c, number, before)
	case fill:
		a.kind, tells = slot.Fill(at(r.now), id(c.load), int64(c.number),
			frames[c.load][c.version][0], at(r.valueTicks))
		r.fills(c, before, a.kind)
	case conclude:
		e := Ending{Kind: uint8(c.ending), Frame: frames[0][c.version][0]}
		keep := uint8(leaseTicks + 1)
		backoff := r.backoff
		drop := c.ending == unstored || c.ending == unshared
		if drop {
			backoff = 0
		}
		if c.ending == failure && c.key == 0 && r.holds(c, before) {
			r.failed = failed{load: c.load, backoff: r.now + backoff, keep: r.now + keep}
		}
		tells = slot.Conclude(at(r.now), id(c.load), int64(c.number), e, drop, at(keep),
			at(backoff))
	case renew:
		a.kind = slot.Renew(at(r.now), id(c.load), int64(c.number), at(leaseTicks))
	case release:
		tells = slot.Release(at(r.now), id(c.load))
		if slot.Lease != before.Lease && before.Lease.Token != id(c.load) {
			r.fail("releasesAnothers")
		}
	case invalidate:
		tells = slot.Invalidate()
	case mark:
		tells = slot.MarkStale(at(r.now), markAt, "\x01")
		vouches = since{fresh: c.version}
	case claim:
		n, t := slot.Claim(at(r.now), id(c.load), int64(number), at(leaseTicks))
		a.number, tells = uint8(n), t
	}
	if c.kind == invalidate || c.kind == mark || c.kind == claim {
		r.failed = failed{}
		r.made[c.key].raise(vouches)
	}
	*slot = slot.At(at(r.now))
	if c.kind != fill && c.kind != conclude {
		r.voids(c.key, before)
	}
	if r.trace {
		r.note(storeColumn, "%s of %c: %v %s", verbNames[c.kind], letter(c.load), a, tells)
	}
	r.publish(message{
		tells: tells, key: c.key, load: c.load, version: c.version, ending: c.ending,
		since: vouches,
	}, before.Waiters)
	return a
}

func (r *run) ask(slot *Slot, c command, number uint8, before Slot) (a reply) {
	got := slot.Ask(at(r.now), Question{
		Token: id(c.load), Number: int64(number), TTL: at(leaseTicks), Seen: ids[c.seen],
		Awaited: id(c.awaited), Inbox: r.inboxOf(c.load),
	})
	a = reply{kind: got.Kind, left: uint8(got.Left)}
	switch got.Kind {
	case Granted:
		a.load, a.number = c.load, uint8(got.Number)
		if before.Lease.Token == id(c.load) {
			break
		}
		load, _, _ := inFrame(before.Frame)
		switch now := at(r.now); {
		case before.Lease.Until > 0, load != 0 && load != c.seen, now < at(r.failed.backoff):
			r.fail("secondLoad")
		case c.waited != 0 && c.waited == r.failed.load && now < at(r.failed.keep):
			r.fail("secondLoadForWaiter")
		}
		if c.key == 0 {
			r.failed = failed{}
		}
	case Held:
		a.load = got.Load[0]
		if a.load == c.load {
			r.fail("waitsForItself")
		}
	case Value:
		a.load, a.version, a.stale = inFrame(got.Frame)
	case Outcome:
		a.load, a.ending = got.Load[0], ending(got.Ending.Kind)
		_, a.version, _ = inFrame(got.Ending.Frame)
		if at(r.now) >= before.Record.Backoff && a.load != c.waited {
			r.fail("errorFromBefore")
		}
	}
	return a
}

// holds reports whether the lease in the slot has the grant of the command.
func (r *run) holds(c command, slot Slot) bool {
	return slot.Lease.Until > 0 && slot.Lease.Token == id(c.load) &&
		slot.Lease.Number == int64(c.number)
}

// fills checks what a fill has done.
func (r *run) fills(c command, before Slot, kind Kind) {
	mine := r.holds(c, before)
	is, _, _ := inFrame(r.slots[c.key].Frame)
	was, _, _ := inFrame(before.Frame)
	switch {
	case !mine && r.slots[c.key].Frame != before.Frame:
		r.fail("lateFill")
	case kind == Stored && is != c.load:
		r.fail("refusedButStored")
	case kind != Stored && was == c.load:
		r.fail("storedButRefused")
	}
	for p := range r.all(&r.world) {
		for i := range r.procs[p].flights {
			f := &r.procs[p].flights[i]
			if f.op.kind == c && f.m.State == Settling && !f.void && f.m.Until > at(r.now) &&
				kind != Stored {
				r.fail("refusedUndisturbed")
			}
		}
	}
}

// voids marks the flights whose lease a step has taken away before its end.
func (r *run) voids(key uint8, before Slot) {
	is := r.slots[key].Lease
	if before.Lease.Until == 0 || before.Lease.Token == is.Token {
		return
	}
	for p := range r.all(&r.world) {
		for i := range r.procs[p].flights {
			if f := &r.procs[p].flights[i]; f.used && id(f.token) == before.Lease.Token {
				f.void = true
			}
		}
	}
}

// beginsWithLease checks that a load that begins now has the lease. Then no other load has it. If
// another flight believed that it has the lease, check would fail.
func (r *run) beginsWithLease(f *flight) {
	l := r.slots[f.key].At(at(r.now)).Lease
	if !f.void && (l.Until == 0 || l.Token != id(f.token) || l.Number != int64(f.number)) {
		r.fail("loadWithoutLease")
	}
}

// inboxOf returns the inbox of the process that asks with this token.
func (r *run) inboxOf(t token) uint64 {
	for p := range r.all(&r.world) {
		for i := range r.procs[p].flights {
			if f := &r.procs[p].flights[i]; f.used && f.token == t {
				return 1 << p
			}
		}
	}
	return 0 // the asking flight has ended
}

// publish puts a message on its way to each process that gets it and can use it.
func (r *run) publish(m message, waiters Waiters) {
	if m.tells == TellsNothing {
		return
	}
	if m.tells == TellsChanged {
		m.load, m.version, m.ending = 0, 0, noEnding
	} else {
		m.since = since{}
	}
	if m.tells == TellsReleased {
		m.version, m.ending = 0, noEnding
	}
	for p := range r.all(&r.world) {
		if pr := &r.procs[p]; !pr.dead && !pr.cut &&
			(m.tells == TellsChanged || waiters.Inboxes&(1<<p) != 0 && pr.waits(m.key)) {
			r.post(p, m)
		}
	}
}

// waits reports whether a message about the key could be for one of the process's flights.
func (pr *process) waits(key uint8) bool {
	for i := range pr.flights {
		if f := &pr.flights[i]; f.used && f.key == key &&
			(f.m.State == Asking || f.m.State == Following) {
			return true
		}
	}
	return false
}

func (r *run) post(p int, m message) {
	box := &r.procs[p].inbox
	for i := range box {
		if box[i] == (message{}) {
			box[i] = m
			return
		}
	}
	r.fail("tooManyMessages")
}

// check checks the conditions that must hold in every world.
func (r *run) check() {
	for k := range r.keys {
		slot := r.slots[k].At(at(r.now))
		if _, v, stale := inFrame(slot.Frame); v > 0 &&
			(v < r.since[k].all || !stale && v < r.since[k].fresh) {
			r.fail("olderThanChange")
		}
		if slot.Lease.Until > 0 && slot.Record.Until > 0 {
			r.fail("leaseAndRecord")
		}
	}
	for p := range r.all(&r.world) {
		for i := range r.procs[p].flights {
			f := &r.procs[p].flights[i]
			if f.m.State == Following && f.m.Behind {
				r.fail("waitsForNobody")
			}
			if f.m.State == Following && f.m.Solo {
				r.fail("waitsForOthers")
			}
			if f.m.State != Leading || f.void || f.m.Until <= at(r.now) {
				continue
			}
			// The flight has good reason to believe that it has the lease. It must not believe so
			// for longer than the lease lasts in the store.
			l := r.slots[f.key].At(at(r.now)).Lease
			if l.Token != id(f.token) || l.Number != int64(f.number) || l.Until < f.m.Until {
				r.fail("believesTooLong")
			}
		}
	}
	if r.quiet && r.loads > uint8(r.keys) {
		r.fail("secondLoad")
	}
}

// atRest checks the conditions that must hold when no event is left.
func (r *run) atRest() {
	for p := range r.all(&r.world) {
		pr := &r.procs[p]
		for i := range pr.flights {
			if pr.flights[i].used {
				r.fail("waitsForEver")
			}
		}
		if pr.late > 0 {
			r.fail("waitsForEver")
		}
	}
	for k := range r.keys {
		undisturbed := r.may.crashes+r.may.lost+r.may.again == 0 && r.start == nil
		if l := r.slots[k].At(at(r.now)).Lease; l.Until > 0 && undisturbed {
			r.fail("leaseLeftBehind")
		}
	}
}
