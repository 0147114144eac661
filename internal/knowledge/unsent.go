package knowledge

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// Unsent has the changes that the store is yet to be told, for the first time or again. Until then
// the store may still have the values from before these changes, until their TTL is over; this
// process doesn't use them. The zero Unsent is ready to use, and safe for concurrent use.
type Unsent struct {
	some atomic.Bool   // there may be something to look up
	now  atomic.Uint64 // counts what was sent, for Has

	mu     sync.RWMutex // guards the fields below
	keys   map[string]change
	tags   map[string]change // "" is the whole cache
	unsent int
	last   uint64 // number of the latest change
}

// change is a change that the store is yet to be told.
type change struct {
	number     uint64
	generation int64     // values that were loaded up to here are from before the change; in microseconds on the clock of the stamps
	mark       time.Time // when a value was marked stale; zero: it was invalidated
	again      bool      // the store was told, but may have forgotten the change
	sent       uint64    // not 0: the store was told then, and answers from before that may still be on their way
}

// maxUnsent is how many changes are remembered. If there are more, they become one change of the
// whole cache.
const maxUnsent = 16 << 10

// Last returns the number of the latest change.
func (u *Unsent) Last() uint64 {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return u.last
}

// Count returns how many changes the store has not been told.
func (u *Unsent) Count() int {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return u.unsent
}

// AddKeys adds changes of keys. The keys were marked stale at the time mark, or invalidated if mark
// is zero.
func (u *Unsent) AddKeys(keys []string, generation int64, mark time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, key := range keys {
		u.add(&u.keys, key, change{generation: generation, mark: mark})
	}
}

// AddTags adds an invalidation of tags, or of the whole cache if there are no tags.
func (u *Unsent) AddTags(tags []string, generation int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(tags) == 0 {
		tags = []string{""}
	}
	for _, tag := range tags {
		u.add(&u.tags, tag, change{generation: generation})
	}
}

func (u *Unsent) add(to *map[string]change, name string, c change) {
	if *to == nil {
		*to = make(map[string]change)
	}
	old, known := (*to)[name]
	if !known && len(u.keys)+len(u.tags) >= maxUnsent && name != "" {
		u.keys, u.tags, u.unsent = nil, nil, 0
		u.add(&u.tags, "", change{generation: c.generation})
		return
	}
	if !known || old.sent != 0 {
		u.unsent++
	}
	if known {
		c = c.after(old)
	}
	u.last++
	c.number = u.last
	(*to)[name] = c
	u.some.Store(true)
}

// after returns the change that replaces both c and the earlier change old. What old invalidated
// stays invalidated even if the store was told of old: answers from before that may still be on
// their way.
func (c change) after(old change) change {
	if old.mark.IsZero() || !c.mark.IsZero() && old.mark.Before(c.mark) {
		c.mark = old.mark
	}
	c.again = c.again && (old.again || old.sent != 0)
	c.generation = max(c.generation, old.generation)
	return c
}

// Now returns the moment to pass to Has for what the store is asked next.
func (u *Unsent) Now() uint64 { return u.now.Load() }

// Has reports whether a value with this stamp is from before a change. If the value was only marked
// stale since, Has returns when that was. Changes that the store was told before it was asked for
// the value are ignored.
func (u *Unsent) Has(asked uint64, key string, tags frame.Tags, stamp int64) (gone bool, mark time.Time) {
	if !u.some.Load() {
		return false, mark
	}
	u.mu.RLock()
	defer u.mu.RUnlock()
	counts := func(of map[string]change, name string) (change, bool) {
		c, ok := of[name]
		return c, ok && stamp <= c.generation && (c.sent == 0 || c.sent > asked)
	}
	if _, ok := counts(u.tags, ""); ok {
		return true, mark
	}
	if c, ok := counts(u.keys, key); ok {
		if mark = c.mark; mark.IsZero() {
			return true, mark
		}
	}
	for i, tag := range tags.All() {
		c, ok := counts(u.tags, tag)
		switch {
		case !ok:
		case !tags.Soft(i):
			return true, time.Time{}
		case mark.IsZero() || mark.UnixMicro() > c.generation:
			mark = time.UnixMicro(c.generation)
		}
	}
	return false, mark
}

// Letter is a set of changes that the store can be told together.
type Letter struct {
	Whole   bool     // the whole cache was invalidated; then the letter has nothing else
	Tags    []string // invalidated tags
	Gone    []string // invalidated keys
	Stale   []string // keys that were marked stale
	Mark    time.Time
	Through uint64 // number of the latest change that can be in the letter

	// Changes that the store was told before. If the store still has them, they need not be
	// repeated.
	AgainTags, AgainKeys []Told
}

// Letters returns all changes that the store has not been told, in the order in which they were
// made, with at most this many in one letter. A change of the whole cache comes first, in a letter
// of its own: if the store takes it, the changes made before it need not be sent.
func (u *Unsent) Letters(most int) (all []Letter) {
	type named struct {
		of
		change
	}
	u.mu.RLock()
	last := u.last
	whole, ok := u.tags[""]
	if ok = ok && whole.sent == 0 && !whole.again; ok {
		all = append(all, Letter{Whole: true, Through: last})
	}
	left := make([]named, 0, u.unsent)
	for _, tag := range []bool{true, false} {
		from := u.keys
		if tag {
			from = u.tags
		}
		for name, c := range from {
			if c.sent == 0 && !(ok && tag && name == "") {
				left = append(left, named{of{name, tag}, c})
			}
		}
	}
	u.mu.RUnlock()
	slices.SortFunc(left, func(a, b named) int { return cmp.Compare(a.number, b.number) })
	for some := range slices.Chunk(left, most) {
		l := Letter{Through: last}
		for _, c := range some {
			again := Told{c.name, c.generation, c.mark}
			switch {
			case c.tag && c.again:
				l.AgainTags = append(l.AgainTags, again)
			case c.tag:
				l.Tags = append(l.Tags, c.name)
			case c.again:
				l.AgainKeys = append(l.AgainKeys, again)
			default:
				l.AddKey(c.name, c.mark)
			}
		}
		all = append(all, l)
	}
	return all
}

// AddKey adds a key. The key was marked stale at the time mark, or invalidated if mark is zero. The
// stale windows of all marked keys begin at the earliest of their marks.
func (l *Letter) AddKey(key string, mark time.Time) {
	if mark.IsZero() {
		l.Gone = append(l.Gone, key)
		return
	}
	if l.Stale = append(l.Stale, key); l.Mark.IsZero() || mark.Before(l.Mark) {
		l.Mark = mark
	}
}

// SentKeys records that the store knows the changes of these keys up to a number: all of these
// changes, or only the marks.
func (u *Unsent) SentKeys(keys []string, through uint64, marks bool) (sent int) {
	if !u.some.Load() {
		return 0
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, key := range keys {
		if c, ok := u.keys[key]; ok && (!marks || !c.mark.IsZero()) {
			sent += u.send(u.keys, key, through)
		}
	}
	return sent
}

// SentTags records that the store knows the changes of these tags up to a number, or all changes if
// there are no tags.
func (u *Unsent) SentTags(tags []string, through uint64) (sent int) {
	if !u.some.Load() {
		return 0
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(tags) == 0 {
		for key := range u.keys {
			sent += u.send(u.keys, key, through)
		}
		for tag := range u.tags {
			sent += u.send(u.tags, tag, through)
		}
	}
	for _, tag := range tags {
		sent += u.send(u.tags, tag, through)
	}
	return sent
}

// SentTag is SentTags for one tag, or for the whole cache alone if tag is "".
func (u *Unsent) SentTag(tag string, through uint64) (sent int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.send(u.tags, tag, through)
}

func (u *Unsent) send(of map[string]change, name string, through uint64) int {
	c, ok := of[name]
	if !ok || c.sent != 0 || c.number > through {
		return 0
	}
	c.sent = u.now.Add(1)
	of[name] = c
	u.unsent--
	return 1
}

// Forget removes the changes up to a number that the store was told.
func (u *Unsent) Forget(through uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, of := range []map[string]change{u.keys, u.tags} {
		for name, c := range of {
			if c.sent != 0 && c.number <= through {
				delete(of, name)
			}
		}
	}
	u.some.Store(len(u.keys)+len(u.tags) > 0)
}
