package storetest

import (
	"runtime"
	"slices"
	"sync"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// inbox is a listener that keeps its messages.
type inbox struct {
	e *env

	mu   sync.Mutex // guards the fields below
	all  []cacheguard.Message
	busy bool
	both bool // the listener was called twice at the same time
}

// listen makes an inbox for a cache of this process, and waits until messages of this cache arrive.
// Listening may be true earlier, while only messages of other caches arrive.
func (e *env) listen(s cacheguard.Store, cache string) *inbox {
	e.Helper()
	in := &inbox{e: e}
	e.atEnd(s.Listen(cache, in.tell))
	e.listening(s)
	e.eventually("the listener is told that messages arrive", func() bool {
		return slices.ContainsFunc(in.messages(), func(m cacheguard.Message) bool {
			return m.Kind == cacheguard.MessageRestored
		})
	})
	return in
}

// listening waits until messages arrive.
func (e *env) listening(s cacheguard.Store) {
	e.Helper()
	if err := s.Warm(e.ctx); err != nil {
		e.Fatalf("Warm: %v", err)
	}
	e.eventually("Listening is true", s.Listening)
}

func (in *inbox) tell(m cacheguard.Message) {
	in.enter()
	runtime.Gosched() // long enough for another call to begin
	in.mu.Lock()
	defer in.mu.Unlock()
	in.busy = false
	in.all = append(in.all, m)
}

func (in *inbox) enter() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.both = in.both || in.busy
	in.busy = true
}

func (in *inbox) messages() []cacheguard.Message {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.all)
}

// about returns the messages about one key that have arrived.
func (in *inbox) about(k cacheguard.Key) []cacheguard.Message {
	return slices.DeleteFunc(in.messages(), func(m cacheguard.Message) bool {
		return m.Kind == cacheguard.MessageRestored || m.Key != k.Key
	})
}

// changes counts the messages about changes of the key.
func (in *inbox) changes(k cacheguard.Key) (n int) {
	for _, m := range in.about(k) {
		if m.Kind == cacheguard.MessageChanged {
			n++
		}
	}
	return n
}

// await waits for the first message of this kind about the key, and returns it.
func (in *inbox) await(k cacheguard.Key, kind cacheguard.MessageKind) (found cacheguard.Message) {
	in.e.Helper()
	in.e.eventually("a message arrives: "+messageKind(kind)+" "+name(k), func() bool {
		i := slices.IndexFunc(in.about(k), func(m cacheguard.Message) bool {
			return m.Kind == kind
		})
		if i >= 0 {
			found = in.about(k)[i]
		}
		return i >= 0
	})
	return found
}

// until invalidates the key. It returns the messages about the key that came before the message
// about this invalidation. So it shows which messages did not come.
func (in *inbox) until(s cacheguard.Store, k cacheguard.Key) []cacheguard.Message {
	in.e.Helper()
	before := in.changes(k)
	in.e.invalidate(s, k)
	in.e.eventually("a message tells of the invalidation", func() bool {
		return in.changes(k) > before
	})
	all := in.about(k)
	return all[:len(all)-1]
}

// none checks that no message of this kind about the key has come or comes.
func (in *inbox) none(s cacheguard.Store, k cacheguard.Key, kind cacheguard.MessageKind) {
	in.e.Helper()
	for _, m := range in.until(s, k) {
		if m.Kind == kind {
			in.e.Errorf("a message came that should not: %s %s of load %v", messageKind(kind),
				name(k), m.Load)
		}
	}
}

func messageKind(k cacheguard.MessageKind) string {
	switch k {
	case cacheguard.MessageChanged:
		return "changed"
	case cacheguard.MessageFilled:
		return "filled"
	case cacheguard.MessageOutcome:
		return "outcome"
	case cacheguard.MessageReleased:
		return "released"
	case cacheguard.MessageRestored:
		return "restored"
	case cacheguard.MessageLost:
		return "lost"
	case cacheguard.MessageTags:
		return "invalidated tags"
	}
	return "unknown"
}
