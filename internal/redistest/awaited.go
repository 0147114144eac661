package redistest

import "sync"

// maxAwaited is the largest number of commands that a client may send before their replies come. It
// is larger than any reasonable pipeline.
const maxAwaited = 1 << 20

// awaited has the commands of one connection whose replies haven't come, in order. It never makes
// the sender wait, because a client may write a whole pipeline before it reads, and without a proxy
// Redis would keep the replies.
type awaited struct {
	mu         sync.Mutex // guards the fields below
	queue      []sent
	subscribed bool // there was a SUBSCRIBE, so messages may come
	answered   int  // the replies since the last call of delivered
}

type sent struct {
	fault *Fault // the fault that has taken the command, or nil
	hello bool
	// For SUBSCRIBE and similar commands: the number of confirmations, one for each channel,
	// instead of a reply.
	confirmations int
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

// answer removes the command to which an ordinary reply belongs. If the server sends a reply
// without a command, such as "max number of clients", there is none.
func (a *awaited) answer() sent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pop()
}

// confirm counts one confirmation of a subscription and returns its command. If the server sends a
// confirmation without a command, there is none.
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

// pop removes the first command. The caller holds mu.
func (a *awaited) pop() sent {
	if len(a.queue) == 0 {
		return sent{}
	}
	first := a.queue[0]
	a.queue[0] = sent{}
	a.queue = a.queue[1:]
	a.answered++
	return first
}

// delivered returns the number of commands whose replies have reached the client since the last
// call. It is called when nothing of a reply is on its way.
func (a *awaited) delivered() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.answered
	a.answered = 0
	return n
}

// left is like delivered, but for the end of the connection. It also counts the commands whose
// replies will never come.
func (a *awaited) left() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answered + len(a.queue)
}

func (a *awaited) hasSubscribed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.subscribed
}

// faults returns the faults whose commands were never answered.
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
