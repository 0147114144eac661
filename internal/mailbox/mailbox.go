// Package mailbox lets a goroutine run functions that other goroutines post to it.
package mailbox

import "sync"

// Box has functions that one goroutine must run. Post is safe for concurrent use; only that
// goroutine may call the other methods.
type Box struct {
	ready chan struct{} // buffer of one

	mu      sync.Mutex // guards the fields below
	letters []func()
	room    [1]func() // enough for most boxes
	read    int       // number of letters that have been taken
	closed  bool
}

// Init prepares the box. Call it before any other method.
func (b *Box) Init() { b.ready, b.letters = make(chan struct{}, 1), b.room[:0] }

// Ready returns a channel that delivers one element when there may be something to Read.
func (b *Box) Ready() <-chan struct{} { return b.ready }

// Post adds a function that Read will call, or returns false if the box is closed.
func (b *Box) Post(do func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.letters = append(b.letters, do)
	select {
	case b.ready <- struct{}{}:
	default:
	}
	return true
}

// Read calls the posted functions in order, including functions that are posted meanwhile. If one
// of them ends the goroutine, the remaining functions stay in the box.
func (b *Box) Read() {
	for do := b.take(); do != nil; do = b.take() {
		do()
	}
}

// take returns the next function, or nil.
func (b *Box) take() (do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.read == len(b.letters) {
		b.letters, b.read = b.letters[:0], 0
		return nil
	}
	do, b.letters[b.read] = b.letters[b.read], nil
	b.read++
	return do
}

// Close makes Post return false from now on. It also calls the functions that were posted before,
// so that nothing that they carry is lost.
func (b *Box) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.Read()
}
