package memstore

import (
	"container/heap"
	"math"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

const (
	noLimit  = math.MaxInt64
	overhead = 200 // the approximate bytes of an item, without its key and its value
	sweepMax = 64  // largest number of items that one sweep drops, so that no step takes long
)

// table is a map whose items expire. When its items have too many bytes, it drops the items that
// would expire next. Times are durations since the store was made.
type table[T any] struct {
	limit    int64
	bytes    int64
	items    map[cacheguard.Key]*item[T]
	byExpiry expiries[T]
}

type item[T any] struct {
	key   cacheguard.Key
	what  T
	until time.Duration // the item exists before this time
	size  int64
	index int // index in byExpiry
}

func newTable[T any](limit int64) table[T] {
	return table[T]{limit: limit, items: make(map[cacheguard.Key]*item[T])}
}

// get returns the key's item, or nil.
func (t *table[T]) get(k cacheguard.Key, now time.Duration) *item[T] {
	if it := t.items[k]; it != nil && now < it.until {
		return it
	}
	return nil
}

// set replaces the key's item. An item with until 0 doesn't exist.
func (t *table[T]) set(k cacheguard.Key, what T, size int, until time.Duration) {
	it := t.items[k]
	if it != nil && it.size == t.cost(k, size) && until > 0 {
		it.what, it.until = what, until
		heap.Fix(&t.byExpiry, it.index)
		return
	}
	t.remove(k)
	if until > 0 {
		t.put(k, what, t.cost(k, size), until)
	}
}

func (t *table[T]) cost(k cacheguard.Key, size int) int64 {
	return int64(size+len(k.Cache)+len(k.Key)) + overhead
}

// put adds an item. If there isn't enough room, it drops the items that would expire next. An item
// that is larger than the limit isn't added.
func (t *table[T]) put(k cacheguard.Key, what T, size int64, until time.Duration) {
	if size > t.limit {
		return
	}
	for t.bytes+size > t.limit {
		t.remove(t.byExpiry[0].key)
	}
	it := &item[T]{key: k, what: what, until: until, size: size}
	t.items[k] = it
	t.bytes += size
	heap.Push(&t.byExpiry, it)
}

func (t *table[T]) remove(k cacheguard.Key) {
	it := t.items[k]
	if it == nil {
		return
	}
	delete(t.items, k)
	t.bytes -= it.size
	heap.Remove(&t.byExpiry, it.index)
}

// sweep drops some of the expired items. Every step sweeps, so no goroutine is needed to free
// memory.
func (t *table[T]) sweep(now time.Duration) {
	for range sweepMax {
		if len(t.byExpiry) == 0 || now < t.byExpiry[0].until {
			return
		}
		t.remove(t.byExpiry[0].key)
	}
}

// expiries is a heap for container/heap, whose first item is the one that expires next.
type expiries[T any] []*item[T]

func (e expiries[T]) Len() int           { return len(e) }
func (e expiries[T]) Less(i, j int) bool { return e[i].until < e[j].until }

func (e expiries[T]) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

func (e *expiries[T]) Push(x any) {
	it := x.(*item[T])
	it.index = len(*e)
	*e = append(*e, it)
}

func (e *expiries[T]) Pop() any {
	last := len(*e) - 1
	it := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return it
}
