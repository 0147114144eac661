package msgpackcodec

import (
	"encoding/binary"
	"errors"
)

var (
	errShort     = errors.New("msgpackcodec: bytes end before the object does")
	errTrailing  = errors.New("msgpackcodec: bytes go on after the object")
	errDeep      = errors.New("msgpackcodec: nested too deeply")
	errReserved  = errors.New("msgpackcodec: not MessagePack")
	errExtension = errors.New("msgpackcodec: extension type other than a timestamp")
	errTimestamp = errors.New("msgpackcodec: timestamp with a second or more of nanoseconds")
)

const (
	maxDepth = 10000 // like encoding/json
	maxNanos = 999_999_999
)

// sound checks src and returns bytes that can be passed to the library: one whole object with
// everything that it declares.
//
// These bytes are src, unless src has a short timestamp whose body begins with a byte above 0x7f,
// which could be the head of a map. Where the library expects a map, it skips the head of an
// extension and reads the extension's body as a map, so it would read the rest of src from a
// different position than sound did. Such a timestamp is rewritten in its longest form, whose body
// begins with a byte that can't be the head of a map.
func sound(src []byte) ([]byte, error) {
	var (
		few [32]uint64
		// For each open array or map the number of missing objects, the innermost last.
		lacks = append(few[:0], 1)
		fixed []byte // a copy of src[:done] with longer timestamps, if there are any
		done  int
	)
	for at := 0; ; {
		for lacks[len(lacks)-1] == 0 {
			if lacks = lacks[:len(lacks)-1]; len(lacks) > 0 {
				continue
			}
			switch {
			case at < len(src):
				return nil, errTrailing
			case done > 0:
				return append(fixed, src[done:]...), nil
			}
			return src, nil
		}
		lacks[len(lacks)-1]--

		size, inner, err := object(src[at:])
		if err != nil {
			return nil, err
		}
		this := src[at : at+size]
		at += size
		if inner > 0 {
			if len(lacks) > maxDepth {
				return nil, errDeep
			}
			lacks = append(lacks, inner)
		}
		if isExtension(this[0]) {
			long, err := timestamp(this)
			if err != nil {
				return nil, err
			}
			if long != nil {
				fixed = append(append(fixed, src[done:at-size]...), long...)
				done = at
			}
		}
	}
}

// object returns the size in bytes of the object at the start of b without the objects inside it,
// and the number of these inner objects.
func object(b []byte) (size int, inner uint64, err error) {
	if len(b) == 0 {
		return 0, 0, errShort
	}
	var head, body uint64 = 1, 0
	// length returns the big-endian number in the n bytes after the first byte.
	length := func(n int) (v uint64) {
		head += uint64(n)
		if head > uint64(len(b)) {
			return 0 // then even the object's head is too long
		}
		for _, c := range b[1 : 1+n] {
			v = v<<8 | uint64(c)
		}
		return v
	}
	switch c := b[0]; {
	case c <= 0x7f, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3: // small integers, nil, booleans
	case c <= 0x8f:
		inner = 2 * uint64(c&0x0f)
	case c <= 0x9f:
		inner = uint64(c & 0x0f)
	case c <= 0xbf:
		body = uint64(c & 0x1f)
	case c == 0xc1:
		return 0, 0, errReserved
	case c <= 0xc6: // binary
		body = length(1 << (c - 0xc4))
	case c <= 0xc9: // extensions, with their type
		body = 1 + length(1<<(c-0xc7))
	case c <= 0xcb: // floats
		body = 4 << (c - 0xca)
	case c <= 0xcf: // unsigned
		body = 1 << (c - 0xcc)
	case c <= 0xd3: // signed
		body = 1 << (c - 0xd0)
	case c <= 0xd8: // extensions of fixed size, with their type
		body = 1 + 1<<(c-0xd4)
	case c <= 0xdb: // strings
		body = length(1 << (c - 0xd9))
	case c <= 0xdd: // arrays
		inner = length(2 << (c - 0xdc))
	default: // maps
		inner = 2 * length(2<<(c-0xde))
	}
	if head+body > uint64(len(b)) {
		return 0, 0, errShort
	}
	return int(head + body), inner, nil
}

func isExtension(c byte) bool { return c >= 0xc7 && c <= 0xc9 || c >= 0xd4 && c <= 0xd8 }

// timestamp returns the longest form of a timestamp that must be rewritten, and nil for any other
// valid timestamp. For an invalid timestamp, and for any other extension, it returns an error.
func timestamp(ext []byte) (long []byte, err error) {
	const kind = 0xff // -1
	var nanos, seconds uint64
	switch {
	case ext[0] == 0xd6 && ext[1] == kind:
		seconds = uint64(binary.BigEndian.Uint32(ext[2:]))
		ext = ext[2:]
	case ext[0] == 0xd7 && ext[1] == kind:
		both := binary.BigEndian.Uint64(ext[2:])
		nanos, seconds = both>>34, both&(1<<34-1)
		ext = ext[2:]
	case ext[0] == 0xc7 && ext[1] == 12 && ext[2] == kind:
		nanos = uint64(binary.BigEndian.Uint32(ext[3:]))
		ext = ext[3:]
	default:
		return nil, errExtension
	}
	switch {
	case nanos > maxNanos:
		return nil, errTimestamp
	case ext[0] <= 0x7f: // a small integer, which is not the head of anything
		return nil, nil
	}
	long = binary.BigEndian.AppendUint32([]byte{0xc7, 12, kind}, uint32(nanos))
	return binary.BigEndian.AppendUint64(long, seconds), nil
}
