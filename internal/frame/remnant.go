package frame

// Remnant returns the bytes that stay in the store when a writer removes a value before it stores a
// new value. They have the tags of the removed value, so that the next value can keep these tags,
// even if another process stores it. If the value has no tags or is not a frame, Remnant returns
// nil. The remnant of a remnant is the same remnant.
//
// A remnant is a header of zeros except for the id, followed by the tags in the encoding of a
// frame. The id is the value's id with its highest bit flipped. No frame has the version of a
// remnant, so no process takes a remnant for a value. No load has the id of a remnant. A remnant
// has no checksum, because a wrong tag in it can only invalidate too much, never too little. A
// store may write a mark of staleness into a remnant, but the mark has no effect.
func Remnant(f []byte) []byte {
	if _, ok := RemnantTags(f); ok {
		return f
	}
	if len(f) < HeaderSize || f[0] != Version {
		return nil
	}
	extension, _, ok := split(f)
	if !ok || len(extension) == 0 {
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
	if !tags.valid() { // a store makes remnants without a check, even of a damaged frame
		return nil, false
	}
	return tags, true
}
