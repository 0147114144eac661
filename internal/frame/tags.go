package frame

import "fmt"

// Tags is a list of tags in the encoding of a frame: one byte with its length before each tag. Two
// equal lists have equal bytes.
type Tags []byte

// MakeTags makes a list of tags. Each tag must have 1 to MaxTag bytes, and there may be at most
// MaxTags tags.
func MakeTags(tags []string) (Tags, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	if len(tags) > MaxTags {
		return nil, fmt.Errorf("%d tags, at most %d are allowed", len(tags), MaxTags)
	}
	var list Tags
	for _, tag := range tags {
		if tag == "" {
			return nil, fmt.Errorf("an empty tag")
		}
		if len(tag) > MaxTag {
			return nil, fmt.Errorf("a tag of %d bytes, at most %d are allowed", len(tag), MaxTag)
		}
		list = append(append(list, byte(len(tag))), tag...)
	}
	return list, nil
}

// All returns the tags of a list that MakeTags made or Parse returned.
func (t Tags) All() (tags []string) {
	for len(t) > 0 {
		var tag []byte
		tag, t = t.Cut()
		tags = append(tags, string(tag))
	}
	return tags
}

// Cut returns the first tag and the list of the others, both in the memory of t. t must not be
// empty.
func (t Tags) Cut() (first []byte, others Tags) {
	n := 1 + int(t[0])
	return t[1:n], t[n:]
}

// Soft reports whether the tag with this index is a soft tag, which begins with a zero byte.
func (t Tags) Soft(i int) bool {
	for ; i > 0; i-- {
		t = t[1+int(t[0]):]
	}
	return t[1] == 0
}

func (t Tags) valid() bool {
	for n := 0; len(t) > 0; n++ {
		size := 1 + int(t[0])
		if size == 1 || size > len(t) || n == MaxTags {
			return false
		}
		t = t[size:]
	}
	return true
}
