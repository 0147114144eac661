package redistest

import "slices"

// DropCommand loses a command on its way to the server. By default the server receives no more data
// on that connection, see Then.
func (p *Proxy) DropCommand(match func(Command) bool, then ...Then) *Fault {
	return p.arm(&Fault{match: match, action: dropCommand, then: orSilence(then)})
}

// DropReply forwards a command and loses its reply. When Struck is closed, the server has carried
// the command out. By default the client receives no more data on that connection, see Then. The
// reply of a SUBSCRIBE is all its confirmations.
func (p *Proxy) DropReply(match func(Command) bool, then ...Then) *Fault {
	return p.arm(&Fault{match: match, action: dropReply, then: orSilence(then)})
}

// DelayCommand delays a command, and all later commands on its connection, until gate is closed.
// Struck is closed when the delay begins. If the client gives up meanwhile, the command is still
// carried out later.
func (p *Proxy) DelayCommand(match func(Command) bool, gate <-chan struct{}) *Fault {
	return p.arm(&Fault{match: match, action: delayCommand, gate: gate})
}

// DelayReply delays the reply to a command, and all later replies on its connection, until gate is
// closed. Struck is closed when the delay begins. At that time the server has carried the command
// out.
func (p *Proxy) DelayReply(match func(Command) bool, gate <-chan struct{}) *Fault {
	return p.arm(&Fault{match: match, action: delayReply, gate: gate})
}

// HoldBack loses a command as DropCommand does, but keeps a copy. Release can send the copy to the
// server at any later moment. Struck is closed when the command is kept.
func (p *Proxy) HoldBack(match func(Command) bool, then ...Then) *Held {
	h := &Held{Fault{match: match, action: holdBack, then: orSilence(then)}}
	p.arm(&h.Fault)
	return h
}

// Duplicate lets a command and its reply pass, and keeps a copy of the command. Release can send
// the copy to the server at any later moment. Struck is closed when the original has been carried
// out.
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

// forget removes a fault. The caller holds p.mu.
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
	return slices.DeleteFunc(slices.Clone(p.faults), func(f *Fault) bool {
		return f.state != armed
	})
}
