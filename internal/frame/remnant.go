package frame

// Remnant returns what is left in the store of a value that is removed by somebody who is about to
// store another one in its place: which tags it had, so that the one to come can keep them, whoever
// stores it. It is nil for a value without tags, and for what is no frame. What is left of a
// remnant is that remnant.
//
// A remnant is a header of zeros but for the id, which is the value's with its highest bit turned,
// and the tags as a frame has them. Its version is that of no frame, so it is a value for nobody,
// and its id is that of no load. It carries no checksum: a tag that nobody gave invalidates too
// much, never too little. A mark of staleness has its place in it, where it means nothing.
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

// RemnantTags returns the tags of a remnant, and whether it is one.
func RemnantTags(f []byte) (Tags, bool) {
	if len(f) <= HeaderSize || f[0] != 0 || f[1] != 0 {
		return nil, false
	}
	tags := Tags(f[HeaderSize:])
	return tags, tags.valid()
}
