package knowledge

import (
	"hash/maphash"
	"sync"
	"time"
)

// Times remembers when some keys were changed last. The zero Times remembers nothing, until it is
// begun.
type Times struct {
	mu    sync.Mutex // guards slots
	slots []keyTime  // by hash: a key may displace another one
}

// keyTime is that a key was changed.
type keyTime struct {
	key  uint64 // its hash
	at   time.Time
	load [16]byte // of whoever did it, if he stores something himself
}

// Begin has changes from now on remembered, of so many keys at most.
func (t *Times) Begin(most int) { t.slots = make([]keyTime, most) }

// Changed takes note of a change of a key, which is now.
func (t *Times) Changed(key string, load [16]byte) {
	if len(t.slots) == 0 {
		return
	}
	h := maphash.String(seed, key)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slots[h%uint64(len(t.slots))] = keyTime{h, time.Now(), load}
}

// Of returns when a key was changed last, and by whose load; zero if that is not remembered.
func (t *Times) Of(key string) (at time.Time, load [16]byte) {
	if len(t.slots) == 0 {
		return at, load
	}
	h := maphash.String(seed, key)
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.slots[h%uint64(len(t.slots))]; one.key == h {
		return one.at, one.load
	}
	return at, load
}
