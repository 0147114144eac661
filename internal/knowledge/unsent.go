package knowledge

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// Unsent has the changes that must still be sent to the store, for the first time or again. Until
// they are sent, the store may still have the values from before these changes, at most until their
// TTL ends. This process doesn't use these values. The zero Unsent is ready to use, and safe for
// concurrent use.
type Unsent struct {
	some atomic.Bool   // there may be something to look up
	now  atomic.Uint64 // counts the changes that were sent, for Has

	mu     sync.RWMutex // guards the fields below
	keys   map[string]change
	tags   map[string]change // "" is the whole cache
	unsent int
	last   uint64 // number of the latest change
}

// change is a change that must still be sent to the store.
type change struct {
	number uint64
	// Values with at most this stamp are from before the change; in microseconds on the clock of
	// the stamps.
	generation int64
	mark       time.Time // when a value was marked stale; zero: it was invalidated
	again      bool      // the store was told, but may have forgotten the change
	// With again: the store got the change late, so it is not late once more if it is repeated.
	late bool
	lost bool // with again: the store has certainly forgotten the change
	// If not 0: the store was told at this moment, and answers from before it may still be on their
	// way.
	sent uint64
}

// maxUnsent is the largest number of remembered changes. If there are more changes, they become one
// change of the whole cache.
const maxUnsent = 16 << 10

// Last returns the number of the latest change.
func (u *Unsent) Last() uint64 {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return u.last
}

// Count returns the number of changes that have not reached the store.
func (u *Unsent) Count() int {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return u.unsent
}

// Rest returns Count and Last of one moment. If no change is left, the store has all changes up to
// last; a further change may come at any time.
func (u *Unsent) Rest() (count int, last uint64) {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return u.unsent, u.last
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
		for _, of := range []map[string]change{u.keys, u.tags} {
			for _, old := range of { // c needn't be the latest of them
				c.generation = max(c.generation, old.generation)
			}
		}
		u.keys, u.tags, u.unsent = nil, nil, 0
		u.add(&u.tags, "", change{generation: c.generation})
		return
	}
	if !known || old.sent != 0 {
		u.unsent++
	}
	if known {
		c.late = c.late && (old.late || old.sent != 0)
		c = c.after(old)
	}
	u.last++
	c.number = u.last
	(*to)[name] = c
	u.some.Store(true)
}

// after returns the change that replaces both c and the earlier change old. Even if the store has
// old by now, values that old invalidated stay invalid, because answers that the store gave before
// it had old may still be on their way.
func (c change) after(old change) change {
	if old.mark.IsZero() || !c.mark.IsZero() && old.mark.Before(c.mark) {
		c.mark = old.mark
	}
	c.again = c.again && (old.again || old.sent != 0)
	c.generation = max(c.generation, old.generation)
	return c
}

// Now returns the present moment. Call Now before you ask the store, and pass the moment to Has
// with the answer.
func (u *Unsent) Now() uint64 { return u.now.Load() }

// Some reports whether there may be changes of which the store was not told. If there are none, Has
// need not be called.
func (u *Unsent) Some() bool { return u.some.Load() }

// Has reports whether a value with this stamp is from before a change. If the value was only marked
// stale since then, Has returns the time of the mark. It ignores changes that the store had before
// it was asked for the value.
func (u *Unsent) Has(
	asked uint64, key string, tags frame.Tags, stamp int64,
) (gone bool, mark time.Time) {
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

// Letter is a set of changes that can be sent to the store together.
type Letter struct {
	Whole   bool     // the whole cache was invalidated; then the letter has no other change
	Tags    []string // invalidated tags
	Gone    []string // invalidated keys
	Stale   []string // keys that were marked stale
	Mark    time.Time
	Through uint64 // number of the latest change that can be in the letter

	// These changes were sent to the store before. If the store still has them, they need not be
	// repeated.
	AgainTags, AgainKeys []Told
}

// Letters returns all changes that must still be sent, in the order in which they were made. Each
// letter has at most this number of changes. A change of the whole cache that the store was never
// told comes first, in a letter of its own. If the store accepts this letter, the changes that were
// made before it need not be sent.
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

// Lost records that the store has forgotten the change of a key or tag. A repeated change doesn't
// count as late if nobody knows whether the store still has it.
func (u *Unsent) Lost(name string, tag bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.keys
	if tag {
		of = u.tags
	}
	if c, ok := of[name]; ok {
		c.lost = true
		of[name] = c
	}
}

// Sent counts changes that were sent. All is their number. Late is the number of changes that the
// store didn't have before. A change that the store got late once is not counted as late again.
type Sent struct{ All, Late int }

// SentKeys records that the store knows the changes of these keys up to the number through. If
// marks is true, the store knows only the marks among them.
func (u *Unsent) SentKeys(keys []string, through uint64, marks bool) (sent Sent) {
	if !u.some.Load() {
		return sent
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, key := range keys {
		if c, ok := u.keys[key]; ok && (!marks || !c.mark.IsZero()) {
			u.send(u.keys, key, through, &sent)
		}
	}
	return sent
}

// SentTags records that the store knows the changes of these tags up to the number through. Without
// tags, it records that the store knows all changes.
func (u *Unsent) SentTags(tags []string, through uint64) (sent Sent) {
	if !u.some.Load() {
		return sent
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(tags) == 0 {
		for key := range u.keys {
			u.send(u.keys, key, through, &sent)
		}
		for tag := range u.tags {
			u.send(u.tags, tag, through, &sent)
		}
	}
	for _, tag := range tags {
		u.send(u.tags, tag, through, &sent)
	}
	return sent
}

// SentTag is SentTags for one tag, or for the whole cache alone if tag is "".
func (u *Unsent) SentTag(tag string, through uint64) (sent Sent) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.send(u.tags, tag, through, &sent)
	return sent
}

func (u *Unsent) send(of map[string]change, name string, through uint64, sent *Sent) {
	c, ok := of[name]
	if !ok || c.sent != 0 || c.number > through {
		return
	}
	c.sent = u.now.Add(1)
	of[name] = c
	u.unsent--
	sent.All++
	if !c.late && (!c.again || c.lost) {
		sent.Late++
	}
}

// Forget removes the changes that the store was told, up to the number through.
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
