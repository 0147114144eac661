package knowledge

import (
	"container/list"
	"sync"
	"time"
)

// Lately has the changes that have reached the store recently. After a failover, the new server may
// not have the latest of these changes. The zero Lately is ready to use, and safe for concurrent
// use.
type Lately struct {
	mu     sync.Mutex           // guards the fields below
	byName map[of]*list.Element // elements of order
	order  list.List            // of *told, the oldest first
	// For each second, how many changes that reached the store in this second were dropped for lack
	// of room.
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

// Told is a change that has reached the store.
type Told struct {
	Name       string    // name of a key or of a tag, "" for the whole cache
	Generation int64     // values with at most this stamp are from before the change
	Mark       time.Time // when a value was marked stale; zero: it was invalidated
}

type told struct {
	of
	change // all changes of the name
	at     time.Time
	// When the latest invalidation reached the store, and the marks since then. If only the marks
	// are repeated, the value stays usable.
	gone  time.Time
	marks change
	// When the first of marks reached the store, and the latest of their marks.
	from, latest time.Time
}

// tell adds a change.
func (one *told) tell(c change, now time.Time) {
	one.at = now
	switch {
	case c.mark.IsZero():
		one.gone, one.marks = now, change{}
	case one.marks.mark.IsZero():
		one.marks, one.from, one.latest = c, now, c.mark
	default:
		one.marks = c.after(one.marks)
		if c.mark.After(one.latest) {
			one.latest = c.mark
		}
	}
}

// since returns the changes after the time then. If there are marks from before and after it, since
// returns the latest mark: with the first one, a value that was loaded between them could already
// be past its stale windows.
func (one *told) since(then time.Time) change {
	if !one.gone.Before(then) || one.marks.mark.IsZero() {
		return one.change
	}
	marks := one.marks
	if one.from.Before(then) {
		marks.mark = one.latest
	}
	return marks
}

// maxTold limits the memory. If the number of recent changes is above maxTold, the oldest of them
// are not repeated.
const maxTold = 8 << 10

// oustedTimes is the number of seconds that ousted covers. The cache calls Again with a time that
// is half a minute before messages were interrupted. So after an interruption of more than about
// half a minute, Again looks further back than ousted, and doesn't count some of the dropped
// changes.
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
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now() // under the lock, because Again expects the changes in the order of times
	if l.byName == nil {
		l.byName = make(map[of]*list.Element)
	}
	for _, name := range names {
		what := of{name, tag}
		if e, ok := l.byName[what]; ok {
			one := e.Value.(*told)
			one.change = c.after(one.change)
			one.tell(c, now)
			l.order.MoveToBack(e)
			continue
		}
		if l.order.Len() >= maxTold {
			l.oust()
		}
		one := &told{of: what, change: c}
		one.tell(c, now)
		l.byName[what] = l.order.PushBack(one)
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
// Again returns about how many changes after since it could not add, because Lately had no room to
// keep them. The store may still have these changes.
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
		u.add(to, one.name, one.since(since))
	}
	for _, count := range l.ousted {
		if count.n > 0 && !count.at.Before(since) {
			more += count.n
		}
	}
	return more
}
