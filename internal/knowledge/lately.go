package knowledge

import (
	"container/list"
	"sync"
	"time"
)

// Lately is the changes of which the store was told not long ago. A server that takes the place of
// another may not have the last ones. The zero Lately has none; it is safe for concurrent use.
type Lately struct {
	mu     sync.Mutex            // guards what follows
	byName map[of]*list.Element  // of order
	order  list.List             // of *told, the oldest first
	ousted [oustedTimes]struct { // for each second, how many had no room any more that were told in it
		at time.Time
		n  int
	}
}

// of is what a change is of.
type of struct {
	name string // of a key or of a tag, "" for the whole cache
	tag  bool
}

// Told is a change of which the store was told.
type Told struct {
	Name       string    // of a key or of a tag, "" for the whole cache
	Generation int64     // what was loaded up to here is from before it
	Mark       time.Time // a value was marked stale then; zero: it was invalidated
}

type told struct {
	of
	change
	at time.Time
}

// maxTold bounds the memory. Of more in the time that counts, the oldest are not sent again.
const maxTold = 8 << 10

// oustedTimes are more seconds than those of which changes are sent again.
const oustedTimes = 64

// Keys takes note of changes of keys, as [Unsent.AddKeys] does.
func (l *Lately) Keys(keys []string, generation int64, mark time.Time) {
	l.add(keys, false, change{generation: generation, mark: mark, again: true})
}

// Tags takes note of an invalidation of tags, or without tags of the whole cache.
func (l *Lately) Tags(tags []string, generation int64) {
	if len(tags) == 0 {
		tags = []string{""}
	}
	l.add(tags, true, change{generation: generation, again: true})
}

func (l *Lately) add(names []string, tag bool, c change) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName == nil {
		l.byName = make(map[of]*list.Element)
	}
	for _, name := range names {
		what := of{name, tag}
		if e, ok := l.byName[what]; ok {
			one := e.Value.(*told)
			one.change, one.at = c.after(one.change), now
			l.order.MoveToBack(e)
			continue
		}
		if l.order.Len() >= maxTold {
			l.oust()
		}
		l.byName[what] = l.order.PushBack(&told{what, c, now})
	}
}

func (l *Lately) oust() {
	one := l.order.Remove(l.order.Front()).(*told)
	delete(l.byName, one.of)
	second := one.at.Truncate(time.Second)
	count := &l.ousted[second.Unix()%oustedTimes]
	if !count.at.Equal(second) {
		count.at, count.n = second, 0
	}
	count.n++
}

// Again has the store told again of those since then. They stay here: a server that knows them may
// be followed by another one that doesn't. It returns how many more there were, by and large, for
// which there was no room.
func (l *Lately) Again(since time.Time, u *Unsent) (more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	for e := l.order.Back(); e != nil; e = e.Prev() {
		one := e.Value.(*told)
		if one.at.Before(since) {
			break
		}
		to := &u.keys
		if one.tag {
			to = &u.tags
		}
		u.add(to, one.name, one.change)
	}
	for _, count := range l.ousted {
		if count.n > 0 && !count.at.Before(since) {
			more += count.n
		}
	}
	return more
}
