// Package mailbox has a goroutine do what others post to it.
package mailbox

import "sync"

// Box is what one goroutine is to do. Post is safe for concurrent use, the other methods are that
// goroutine's.
type Box struct {
	ready chan struct{} // has room for one

	mu      sync.Mutex // guards what follows
	letters []func()
	room    [1]func() // for most boxes that is enough
	read    int       // how many of them have been taken
	closed  bool
}

// Init comes before anything else.
func (b *Box) Init() { b.ready, b.letters = make(chan struct{}, 1), b.room[:0] }

// Ready returns a channel that is received from once when there may be something to Read.
func (b *Box) Ready() <-chan struct{} { return b.ready }

// Post has a function called by Read, or returns false: the box is closed.
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

// Read does what is there, in order, and what is posted meanwhile. One of them may end the
// goroutine: the others are still there then.
func (b *Box) Read() {
	for do := b.take(); do != nil; do = b.take() {
		do()
	}
}

// take returns what is to be done next, or nil.
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

// Close turns what is posted from now on away, and does what was posted before, so that nothing is
// lost that it brings.
func (b *Box) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.Read()
}
