package redistest

import "slices"

// DropCommand loses a command on its way to the server. By default the server
// hears no more of that connection, see Then.
func (p *Proxy) DropCommand(match func(Command) bool, then ...Then) *Fault {
	return p.arm(&Fault{match: match, action: dropCommand, then: orSilence(then)})
}

// DropReply forwards a command and loses its reply: when Struck is closed the
// server has carried the command out. By default the client hears no more on
// that connection, see Then. All confirmations of a SUBSCRIBE count as its
// reply.
func (p *Proxy) DropReply(match func(Command) bool, then ...Then) *Fault {
	return p.arm(&Fault{match: match, action: dropReply, then: orSilence(then)})
}

// DelayCommand keeps a command, and with it all that follows on its
// connection, from the server until gate is closed. Struck is closed when the
// command is being kept. Should the client give up meanwhile, the command is
// still carried out later.
func (p *Proxy) DelayCommand(match func(Command) bool, gate <-chan struct{}) *Fault {
	return p.arm(&Fault{match: match, action: delayCommand, gate: gate})
}

// DelayReply keeps the reply to a command, and with it all that follows on
// its connection, from the client until gate is closed. Struck is closed when
// the reply is being kept, so the server has carried the command out.
func (p *Proxy) DelayReply(match func(Command) bool, gate <-chan struct{}) *Fault {
	return p.arm(&Fault{match: match, action: delayReply, gate: gate})
}

// HoldBack loses a command as DropCommand does, but keeps it: Release sends
// it to the server at any later moment. Struck is closed when the command is
// kept.
func (p *Proxy) HoldBack(match func(Command) bool, then ...Then) *Held {
	h := &Held{Fault{match: match, action: holdBack, then: orSilence(then)}}
	p.arm(&h.Fault)
	return h
}

// Duplicate leaves a command and its reply alone, and keeps a copy that
// Release sends to the server at any later moment. Struck is closed when the
// original has been carried out.
func (p *Proxy) Duplicate(match func(Command) bool) *Held {
	h := &Held{Fault{match: match, action: duplicate}}
	p.arm(&h.Fault)
	return h
}

func orSilence(then []Then) Then {
	if len(then) == 0 {
		return Silence
	}
	return then[0]
}

func (p *Proxy) arm(f *Fault) *Fault {
	f.proxy = p
	f.struck = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f
}

// forget needs p.mu.
func (p *Proxy) forget(f *Fault) {
	p.faults = slices.DeleteFunc(p.faults, func(other *Fault) bool { return other == f })
}

// taker returns the fault that takes the command, or nil.
func (p *Proxy) taker(c Command) *Fault {
	if len(p.armed()) == 0 {
		return nil
	}
	p.deciding.Lock()
	defer p.deciding.Unlock()
	for _, f := range p.armed() {
		if f.match(c) && f.take(c) {
			return f
		}
	}
	return nil
}

func (p *Proxy) armed() []*Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.faults), func(f *Fault) bool { return f.state != armed })
}
