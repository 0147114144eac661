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

// writes changes the origin, and begins to change the cache. Set claims first, and then fills.
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

// wrote goes on when the store has answered the writer, or hasn't.
func (r *run) wrote(answered bool) {
	w := r.writer
	if answered && w.op.kind.kind == claim {
		r.writer.op = op{kind: command{kind: fill, load: w.op.kind.load, number: w.op.reply.number, version: w.version}}
		return
	}
	if !answered && w.kind == claim {
		r.send(command{kind: release, load: w.op.kind.load})
	}
	r.writer = writer{}
	pr := &r.procs[0]
	pr.open[0] = 0
	for i := range pr.flights {
		if f := &pr.flights[i]; f.key == 0 {
			f.old = true
		}
	}
	if answered {
		s := since{all: w.version}
		if w.kind == mark {
			s = since{fresh: w.version}
		}
		pr.told[0].raise(s)
		r.since[0].raise(s)
	}
}
