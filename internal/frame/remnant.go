package frame

// Remnant returns what stays in the store when a value is removed by a writer that is about to
// store another one: the tags of the removed value, so that the next value can keep them, whoever
// stores it. Remnant returns nil if the value has no tags or is not a frame. The remnant of a
// remnant is the same remnant.
//
// A remnant is a header of zeros except for the id, followed by the tags as a frame has them. The
// id is the value's with its highest bit flipped. The version is one that no frame has, so nobody
// takes a remnant for a value, and the id is one that no load has. A remnant has no checksum: a
// wrong tag in it invalidates too much, never too little. A mark of staleness may be written into
// it, but means nothing.
func Remnant(f []byte) []byte {
	if _, ok := RemnantTags(f); ok {
		return f
	}
	if len(f) < HeaderSize || f[0] != Version {
		return nil
	}
	extension, _, ok := split(f)
	if !ok {
		return nil
	}
	a, ok := parseExtension(extension)
	if !ok || len(a.Tags) == 0 {
		return nil
	}
	left := make([]byte, HeaderSize, HeaderSize+len(a.Tags))
	copy(left[IDStart:], f[IDStart:IDEnd])
	left[IDStart] ^= 1 << 7
	return append(left, a.Tags...)
}

// RemnantTags returns the tags of a remnant, and whether f is a remnant.
func RemnantTags(f []byte) (Tags, bool) {
	if len(f) <= HeaderSize || f[0] != 0 || f[1] != 0 {
		return nil, false
	}
	tags := Tags(f[HeaderSize:])
	return tags, tags.valid()
}
