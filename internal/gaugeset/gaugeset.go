// Package gaugeset keeps account of caches that an observer reads gauges of: by name, for several
// may have one.
package gaugeset

import (
	"maps"
	"slices"
	"sync"
)

// Set is the caches of one observer. S is what can be read of one. Both functions are required.
type Set[S any] struct {
	Plus func(a, b S) S // of two caches of one name
	Left func(last S) S // what still counts when a cache is gone, of what was read of it last

	mu     sync.Mutex // guards what follows
	byName map[string]*named[S]
	next   int
}

type named[S any] struct {
	read map[int]func() S
	left S
}

// Attach adds a cache until detach is called, which may be called twice.
func (s *Set[S]) Attach(name string, read func() S) (detach func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.byName[name]
	if n == nil {
		if s.byName == nil {
			s.byName = make(map[string]*named[S])
		}
		n = &named[S]{read: make(map[int]func() S)}
		s.byName[name] = n
	}
	id := s.next
	s.next++
	n.read[id] = read
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n.read[id] != nil {
			n.left = s.Plus(n.left, s.Left(read()))
			delete(n.read, id)
		}
	}
}

// Each reads every name there ever was, in order. It reads under the lock, as detach does: between
// the two a cache would count twice or not at all.
func (s *Set[S]) Each(tell func(name string, sum S)) {
	type one struct {
		name string
		sum  S
	}
	var all []one
	s.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		n := s.byName[name]
		sum := n.left
		for _, read := range n.read {
			sum = s.Plus(sum, read())
		}
		all = append(all, one{name, sum})
	}
	s.mu.Unlock()
	for _, o := range all {
		tell(o.name, o.sum)
	}
}
