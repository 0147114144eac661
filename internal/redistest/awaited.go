package redistest

import "sync"

// maxAwaited bounds the commands a client may send without their replies
// having come: a pipeline larger than any sane one.
const maxAwaited = 1 << 20

// awaited are the commands of one connection whose replies haven't come, in
// order. It never makes the sender wait: a client may write a whole pipeline
// before it reads, and without a proxy Redis would keep the replies.
type awaited struct {
	mu         sync.Mutex // guards all below
	queue      []sent
	subscribed bool // there was a SUBSCRIBE, so messages may come
}

type sent struct {
	fault         *Fault // that has taken the command, or nil
	hello         bool
	confirmations int // of a SUBSCRIBE and the like: one for each channel, instead of a reply
}

func (a *awaited) push(c Command, f *Fault) error {
	next := sent{fault: f, hello: c.Name == "HELLO"}
	switch c.Name {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		next.confirmations = max(1, len(c.Args))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.subscribed = a.subscribed || next.confirmations > 0
	a.queue = append(a.queue, next)
	if len(a.queue) > maxAwaited {
		return errProtocol("more than %d commands without a reply", maxAwaited)
	}
	return nil
}

// answer takes out the command that an ordinary reply belongs to. There is
// none when the server speaks unasked, such as "max number of clients".
func (a *awaited) answer() sent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pop()
}

// confirm counts one confirmation of a subscription and returns the command
// it belongs to. There is none for those the server sends unasked.
func (a *awaited) confirm() sent {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) == 0 || a.queue[0].confirmations == 0 {
		return sent{}
	}
	if a.queue[0].confirmations--; a.queue[0].confirmations > 0 {
		return a.queue[0]
	}
	return a.pop()
}

// pop needs mu.
func (a *awaited) pop() sent {
	if len(a.queue) == 0 {
		return sent{}
	}
	first := a.queue[0]
	a.queue[0] = sent{}
	a.queue = a.queue[1:]
	return first
}

func (a *awaited) hasSubscribed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.subscribed
}

// faults are those whose commands were never answered.
func (a *awaited) faults() []*Fault {
	a.mu.Lock()
	defer a.mu.Unlock()
	var faults []*Fault
	for _, w := range a.queue {
		if w.fault != nil {
			faults = append(faults, w.fault)
		}
	}
	return faults
}
