package memstore

import (
	"sync"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// maxQueue is the largest number of messages that may wait for a slow listener. If another message
// comes, all of them are dropped, and the listener is told that messages were lost.
const maxQueue = 1024

// listener delivers messages one after another, in the order in which they were pushed, without a
// goroutine. The step that pushed a message also delivers it, after the store's mutex is unlocked.
// If another step is delivering to the same listener at that moment, that step delivers the
// message, too. So at most one step waits for a listener: the step that calls it. A listener may
// lock a mutex if no holder of that mutex calls the store. A listener must not call the store. If
// it does, there is no deadlock, but the messages of that call are delivered only after the
// listener has returned.
type listener struct {
	tell func(cacheguard.Message)

	mu      sync.Mutex // guards the fields below; never held while telling
	queue   []cacheguard.Message
	telling bool
	stopped bool
}

// push queues a message. If the queue is full, push drops the message and all queued messages and
// returns false. The caller holds the store's mutex, so messages are queued in the order of the
// steps.
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

// deliver tells the listener the queued messages, unless another goroutine is already doing that.
func (l *listener) deliver() {
	if !l.begin() {
		return
	}
	over := false
	defer func() {
		if !over { // tell panicked or called Goexit; the next message must still be delivered
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

// next takes a message from the queue. If the queue is empty, next clears telling while it still
// holds the mutex. So a message that is pushed later is delivered by the step that pushed it.
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

// stop drops the queued messages. After stop has returned, one call of tell may still be running or
// about to begin.
func (l *listener) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped, l.queue = true, nil
}
