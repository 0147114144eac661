package memstore

import (
	"sync"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// maxQueue is how many messages wait for a listener that is slower than they come. One more and
// they are lost, which the listener is told.
const maxQueue = 1024

// listener delivers messages one after another, in the order in which they were pushed, without a
// goroutine: the step that pushed a message also delivers it, after the store's mutex is free,
// unless another step is delivering to the same listener at that moment; then that one delivers it
// too. So nobody waits for a listener but the one step that is calling it, a listener may lock what
// it likes as long as its holders don't call the store, and one that calls the store although it
// must not finds its own messages delivered after it returned instead of a deadlock.
type listener struct {
	tell func(cacheguard.Message)

	mu      sync.Mutex // guards the rest; never held while telling
	queue   []cacheguard.Message
	telling bool
	stopped bool
}

// push queues a message, or drops it with all that are queued and reports false. It is called with
// the store's mutex held, which makes the order of messages that of the steps.
func (l *listener) push(m cacheguard.Message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return true
	}
	if len(l.queue) >= maxQueue {
		l.queue = nil
		return false
	}
	l.queue = append(l.queue, m)
	return true
}

// deliver tells what is queued, unless somebody else does.
func (l *listener) deliver() {
	if !l.begin() {
		return
	}
	over := false
	defer func() {
		if !over { // tell panicked or called Goexit: the next message finds a listener that works
			l.mu.Lock()
			l.telling = false
			l.mu.Unlock()
		}
	}()
	for m, ok := l.next(); ok; m, ok = l.next() {
		l.tell(m)
	}
	over = true
}

func (l *listener) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.telling || len(l.queue) == 0 {
		return false
	}
	l.telling = true
	return true
}

// next takes a message from the queue. That there is none and that nobody is telling any more is
// one fact: a message pushed after it is delivered by whoever pushed it.
func (l *listener) next() (cacheguard.Message, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.queue, l.telling = nil, false
		return cacheguard.Message{}, false
	}
	m := l.queue[0]
	l.queue[0] = cacheguard.Message{}
	l.queue = l.queue[1:]
	return m, true
}

// stop drops what is queued. No call of tell begins after it; one may still be running.
func (l *listener) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped, l.queue = true, nil
}
