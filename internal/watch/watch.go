// Package watch tells those who wait for something about a key what is said of it.
package watch

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Board has the watchers of every key. The zero Board is ready to use and safe for concurrent use.
type Board[M any] struct {
	mu    sync.Mutex // guards byKey
	byKey map[string][]*Watcher[M]
}

// Watcher is told of what is said of one key. It asks about it, too: what it is told before it has
// an answer may be older than that, so questions are numbered.
type Watcher[M any] struct {
	board    *Board[M]
	key      string
	tell     func(question uint32, m M)
	question atomic.Uint32
	unread   atomic.Int32
}

// most messages that have not been looked at are reasons enough to look again.
const most = 8

// Watch has tell called with what is said of a key, and with the number of the question that was
// the last one then. It must not block, and Read is called when what it got has been looked at:
// while there is much that has not been, nothing comes.
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

// Ask says that the watcher asks: what it is told from now on may be news.
func (w *Watcher[M]) Ask() { w.question.Add(1) }

// Asked is the number of the last question.
func (w *Watcher[M]) Asked() uint32 { return w.question.Load() }

// Read says that something it was told has been looked at.
func (w *Watcher[M]) Read() { w.unread.Add(-1) }

// Stop ends it. A nil Watcher is none.
func (w *Watcher[M]) Stop() {
	if w == nil {
		return
	}
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	left := slices.DeleteFunc(w.board.byKey[w.key], func(other *Watcher[M]) bool { return other == w })
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

func (w *Watcher[M]) hear(m M) {
	if w.unread.Add(1) > most {
		w.unread.Add(-1)
		return
	}
	w.tell(w.question.Load(), m)
}
