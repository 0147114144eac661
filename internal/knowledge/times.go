package knowledge

import (
	"hash/maphash"
	"sync"
	"time"
)

// Times remembers when some keys were last changed. The zero Times remembers nothing until Begin is
// called.
type Times struct {
	mu    sync.Mutex // guards slots
	slots []keyTime  // by hash; a key may displace another key
}

// keyTime is the last change of a key.
type keyTime struct {
	key  uint64 // hash of the key
	at   time.Time
	load [16]byte // load of the writer, if the writer stores a value itself
}

// After Begin, t remembers the changes of at most this number of keys.
func (t *Times) Begin(most int) { t.slots = make([]keyTime, most) }

// Changed records that a key is changed now.
func (t *Times) Changed(key string, load [16]byte) {
	if len(t.slots) == 0 {
		return
	}
	h := maphash.String(seed, key)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slots[h%uint64(len(t.slots))] = keyTime{h, time.Now(), load}
}

// Of returns when a key was last changed, and the load of the writer. If t remembers no change of
// the key, Of returns zero.
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
