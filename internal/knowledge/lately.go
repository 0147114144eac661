package knowledge

import (
	"sync"
	"time"
)

// Lately is the changes of which the store was told not long ago. A server that takes the place of another may not have the
// last ones. The zero Lately has none; it is safe for concurrent use.
type Lately struct {
	mu   sync.Mutex // guards what follows
	all  []told
	next int // the oldest, once it is full
}

// Told is a change of which the store was told.
type Told struct {
	Name       string    // of a key or of a tag, "" for the whole cache
	Generation int64     // what was loaded up to here is from before it
	Mark       time.Time // a value was marked stale then; zero: it was invalidated
}

type told struct {
	Told
	at  time.Time
	tag bool
}

// maxTold bounds the memory. Of more in the time that counts, the oldest are not sent again.
const maxTold = 8 << 10

// Keys takes note of changes of keys, as [Unsent.AddKeys] does.
func (l *Lately) Keys(keys []string, generation int64, mark time.Time) {
	l.add(keys, told{Told: Told{Generation: generation, Mark: mark}})
}

// Tags takes note of an invalidation of tags, or without tags of the whole cache.
func (l *Lately) Tags(tags []string, generation int64) {
	if len(tags) == 0 {
		tags = []string{""}
	}
	l.add(tags, told{tag: true, Told: Told{Generation: generation}})
}

func (l *Lately) add(names []string, one told) {
	one.at = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one.Name = range names {
		if len(l.all) < maxTold {
			l.all = append(l.all, one)
			continue
		}
		l.all[l.next] = one
		l.next = (l.next + 1) % maxTold
	}
}

// Again has the store told again of those since then, and forgets all.
func (l *Lately) Again(since time.Time, u *Unsent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, one := range l.all {
		if one.at.Before(since) {
			continue
		}
		to := &u.keys
		if one.tag {
			to = &u.tags
		}
		u.add(to, one.Name, change{generation: one.Generation, mark: one.Mark, again: true})
	}
	l.all, l.next = nil, 0
}
