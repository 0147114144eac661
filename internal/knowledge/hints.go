package knowledge

import (
	"bytes"
	"hash/maphash"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// Hints remembers which tags the values of keys had when they were last seen. With this hint the
// generations of the tags are read in the same trip as the value. A wrong hint costs a trip.
type Hints struct {
	// By the key's hash; nil until a value has tags.
	tagged atomic.Pointer[[1 << 14]atomic.Pointer[Hint]]
}

// Hint has the tags that the value of a key probably has.
type Hint struct {
	key  string
	Raw  frame.Tags
	Tags []string
}

// Untagged is the hint for a value without known tags.
var Untagged = &Hint{Tags: []string{}}

// Of returns the hint for a key.
func (h *Hints) Of(key string) *Hint {
	if all := h.tagged.Load(); all != nil {
		hash := maphash.String(seed, key)
		if one := all[hash%uint64(len(all))].Load(); one != nil && one.key == key {
			return one
		}
	}
	return Untagged
}

// Note remembers which tags the key's value has.
func (h *Hints) Note(key string, tags frame.Tags) {
	all := h.tagged.Load()
	if all == nil {
		if len(tags) == 0 {
			return
		}
		h.tagged.CompareAndSwap(nil, new([1 << 14]atomic.Pointer[Hint]))
		all = h.tagged.Load()
	}
	place := &all[maphash.String(seed, key)%uint64(len(all))]
	switch one := place.Load(); {
	case len(tags) == 0:
		if one != nil && one.key == key {
			place.CompareAndSwap(one, nil)
		}
	case one == nil || one.key != key || !bytes.Equal(one.Raw, tags):
		place.Store(&Hint{key: key, Raw: bytes.Clone(tags), Tags: tags.All()})
	}
}

// TagSet is a set of tags whose generations are read in one trip.
type TagSet struct {
	All []string
	At  map[string]int // index of each tag in All
}

// Add adds tags to the set.
func (s *TagSet) Add(tags []string) {
	for _, tag := range tags {
		if _, ok := s.At[tag]; ok {
			continue
		}
		if s.At == nil {
			s.At = make(map[string]int)
		}
		s.At[tag] = len(s.All)
		s.All = append(s.All, tag)
	}
}

// Covers reports whether all of these tags are in the set.
func (s *TagSet) Covers(tags frame.Tags) bool {
	if len(tags) == 0 {
		return true
	}
	for _, tag := range tags.All() {
		if _, ok := s.At[tag]; !ok {
			return false
		}
	}
	return true
}
