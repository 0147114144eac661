package protocol

func (s *scene) writerSteps(w *world, can func(e event, optional bool)) {
	if w.procs[0].dead {
		return
	}
	switch o := &w.writer.op; {
	case w.writer.kind == noVerb && w.left.writes > 0 && !w.procs[0].closed:
		for _, kind := range s.writes {
			can(event{write, 0, uint8(kind)}, true)
		}
	case w.writer.kind == noVerb:
	case !o.applied:
		can(event{what: reachWrite}, false)
		if w.left.lost > 0 {
			can(event{what: loseWrite}, true)
		}
	default:
		can(event{what: replyWrite}, false)
		if w.left.lost > 0 {
			can(event{what: loseWrite}, true)
		}
	}
}

// writes changes the origin, and begins to change the cache. For a Set this is a claim, and then a
// fill.
func (r *run) writes(kind verb) {
	r.origin[0]++
	r.broken = false
	r.procs[0].open[0] = 0
	c := command{kind: kind, version: r.origin[0]}
	if kind == claim {
		c.load, _ = r.unused(r.scene)
	}
	r.writer = writer{kind: kind, version: c.version, op: op{kind: c}}
}

// wrote continues the write after the store's answer, or when the answer was lost.
func (r *run) wrote(answered bool) {
	w := r.writer
	if answered && w.op.kind.kind == claim {
		r.writer.op = op{
			kind: command{
				kind: fill, load: w.op.kind.load, number: w.op.reply.number, version: w.version,
			},
		}
		return
	}
	if !answered && w.kind == claim {
		r.send(command{kind: release, load: w.op.kind.load})
	}
	r.writer = writer{}
	s := since{all: w.version}
	if w.kind == mark {
		s = since{fresh: w.version}
	}
	r.procs[0].open[0] = 0
	r.changed(0, s, answered)
}

// changed records that a change returns. No later caller may join an older flight. If the store has
// answered, no later caller may get anything older than s.
func (r *run) changed(p int, s since, answered bool) {
	pr := &r.procs[p]
	for i := range pr.flights {
		if f := &pr.flights[i]; f.key == 0 {
			f.old = true
		}
	}
	if answered {
		r.knows(p, s)
	}
}

// knows records the oldest versions that later callers in a process may get.
func (r *run) knows(p int, s since) {
	r.procs[p].told[0].raise(s)
	r.since[0].raise(s)
}

// update begins an update, which writes the origin under a claimed lease.
func (r *run) update(p int) {
	pr := &r.procs[p]
	token, _ := r.unused(r.scene)
	pr.open[0] = 0
	pr.flights[pr.room()] = flight{
		used: true, members: 1, floor: pr.told[0], token: token,
		m:  Miss{Config: r.config(), Role: Role{Claims: true}},
		op: op{kind: command{kind: claim, load: token}, sent: r.now},
	}
}

// claims continues an update after the store's answer to its claim, or when the answer was lost.
func (r *run) claims(p, i int, o op, answered bool) {
	pr := &r.procs[p]
	f := &pr.flights[i]
	pr.open[0] = 0
	f.op, f.m.Down = op{}, !answered
	if answered {
		f.number, f.ends = o.reply.number, o.sent+leaseTicks
	}
	r.tell(p, i, Event{Kind: Begin, Sent: at(o.sent)})
	if pr.closed {
		r.tell(p, i, Event{Kind: End})
	}
}

// withdrawn ends an update whose value could not be stored. The store has removed what it had about
// the key, or its answer was lost.
func (r *run) withdrawn(p, i int, answered bool) {
	pr := &r.procs[p]
	s := since{all: pr.flights[i].load.read}
	pr.open[0], pr.flights[i] = 0, flight{}
	r.changed(p, s, answered)
}
