package knowledge

import (
	"container/list"
	"sync"
	"time"
)

// Lately has the changes that the store was told recently. After a failover, the new server may not
// have the latest of these changes. The zero Lately is ready to use, and safe for concurrent use.
type Lately struct {
	mu     sync.Mutex           // guards the fields below
	byName map[of]*list.Element // elements of order
	order  list.List            // of *told, the oldest first
	// For each second, how many changes that were told in this second were dropped for lack of
	// room.
	ousted [oustedTimes]struct {
		at time.Time
		n  int
	}
}

// of identifies the changed key or tag.
type of struct {
	name string // name of a key or of a tag, "" for the whole cache
	tag  bool
}

// Told is a change that the store was told.
type Told struct {
	Name       string    // name of a key or of a tag, "" for the whole cache
	Generation int64     // values with at most this stamp are from before the change
	Mark       time.Time // when a value was marked stale; zero: it was invalidated
}

type told struct {
	of
	change
	at time.Time
}

// maxTold limits the memory. If the number of recent changes is above maxTold, the oldest of them
// are not repeated.
const maxTold = 8 << 10

// oustedTimes is how many seconds ousted covers. If an interruption of messages lasts longer than
// half a minute, changes are repeated of more seconds than these, and some are not counted.
const oustedTimes = 64

// Keys records changes of keys, as [Unsent.AddKeys] does. late says that the store got them only
// when they were repeated.
func (l *Lately) Keys(keys []string, generation int64, mark time.Time, late bool) {
	l.add(keys, false, change{generation: generation, mark: mark, again: true, late: late})
}

// Tags records an invalidation of tags, or of the whole cache if there are no tags. late is as for
// Keys.
func (l *Lately) Tags(tags []string, generation int64, late bool) {
	if len(tags) == 0 {
		tags = []string{""}
	}
	l.add(tags, true, change{generation: generation, again: true, late: late})
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

// Again adds the changes after the time since to u, so that they are sent to the store again. The
// changes also stay in Lately, because a later failover may bring a server that doesn't know them.
// Again returns the approximate number of changes that are lost because there was no room for them.
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
