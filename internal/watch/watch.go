// Package watch passes messages about a key to the watchers of the key.
package watch

import (
	"slices"
	"sync"
)

// Board has the watchers of every key. The zero Board is ready to use and safe for concurrent use.
type Board[M any] struct {
	mu    sync.Mutex // guards byKey, and question and unread of the watchers
	byKey map[string][]*Watcher[M]
}

// Watcher receives the messages about one key. It also asks the store about the key. A message that
// it receives before the store's answer may be older than the answer. So its requests are numbered.
type Watcher[M any] struct {
	board    *Board[M]
	key      string
	tell     func(question uint32, m M)
	question uint32 // the number of the latest request
	unread   int    // messages that came after this request
}

// most is the largest number of unread messages of a watcher that came after its latest request.
// Further messages are dropped, because the unread ones already make the watcher look again.
const most = 8

// Watch registers tell, which is called with each message about a key and with the number of the
// watcher's latest request at that time. tell must not block, and must not call the watcher. The
// watcher must call Read when it has handled a message. While too many messages are unread, tell is
// not called.
func (b *Board[M]) Watch(key string, tell func(question uint32, m M)) *Watcher[M] {
	w := &Watcher[M]{board: b, key: key, tell: tell}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byKey == nil {
		b.byKey = make(map[string][]*Watcher[M])
	}
	b.byKey[key] = append(b.byKey[key], w)
	return w
}

// Ask counts a request. A message that comes after Ask may be newer than the answer.
func (w *Watcher[M]) Ask() {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	w.question, w.unread = w.question+1, 0
}

// Asked returns the number of the latest request.
func (w *Watcher[M]) Asked() uint32 {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	return w.question
}

// Read is called when the watcher has handled a message. question is the number that came with it.
func (w *Watcher[M]) Read(question uint32) {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	if question == w.question {
		w.unread--
	}
}

// Stop ends the watching. On a nil Watcher it does nothing.
func (w *Watcher[M]) Stop() {
	if w == nil {
		return
	}
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	left := slices.DeleteFunc(w.board.byKey[w.key], func(other *Watcher[M]) bool {
		return other == w
	})
	if w.board.byKey[w.key] = left; len(left) == 0 {
		delete(w.board.byKey, w.key)
	}
}

// Tell tells the watchers of a key. It never blocks.
func (b *Board[M]) Tell(key string, m M) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.byKey[key] {
		w.hear(m)
	}
}

// TellAll tells all watchers.
func (b *Board[M]) TellAll(m M) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, all := range b.byKey {
		for _, w := range all {
			w.hear(m)
		}
	}
}

// hear tells one watcher. The caller holds mu.
func (w *Watcher[M]) hear(m M) {
	if w.unread < most {
		w.unread++
		w.tell(w.question, m)
	}
}
