// Package frame is the format of a value in the store.
//
// A frame is a header of fixed size, an extension and a body. All integers are big-endian.
//
//	offset size
//	     0    1  version, 1
//	     1    1  flags: bit 0 null sentinel (body is empty), bit 1 not to be shared; all others must be zero
//	     2   16  id of the load that made the value
//	    18    8  created-at, microseconds since 1970 on the store's clock
//	    26    8  soft TTL in microseconds: fresh until created-at plus this
//	    34    8  stale-while-revalidate in microseconds: after the soft TTL, served at once while it is refreshed
//	    42    8  stale-if-error in microseconds: after the soft TTL, served when a load fails
//	    50    4  how long the load took, in microseconds (saturating)
//	    54    4  fingerprint of the codec's name and Options.Version; 0 if there is no name and the version is 0
//	    58    8  stamp: what the clock of the cache's generations said before the load began, in microseconds since 1970
//	    66    2  size of the extension
//	    68    4  CRC-32C (Castagnoli) of the whole frame without these four bytes and the eight after them
//	    72    8  when it was marked stale, microseconds since 1970 on the store's clock; 0: it was not
//	    80       extension
//	             body
//
// The stale windows are those of the process that wrote the value, so every process treats the
// value alike. The store keeps the value for the hard TTL, which is the soft TTL plus the larger of
// the two windows.
//
// A tag that begins with a zero byte is a soft tag. The invalidation of a soft tag makes a value
// stale and doesn't remove it.
//
// The extension is empty, or it is a note followed by tags. Before the note and before each tag
// there is one byte with its length. An observer makes the note, which identifies the trace of the
// load.
//
// If bit 1 of the flags is set, the frame is not a value for any caller. Until its soft TTL ends,
// every caller loads for itself (hit-for-miss). The frame's body is only the previous value for
// those loads.
//
// If a writer removes a value with tags, it leaves a [Remnant] for the next value.
//
// "Does not exist" is a flag and not a value, so no body can imitate it. The checksum covers the
// header, the extension and the body. So a frame that was cut, damaged or written by another
// program is an error in this package and a miss in the cache, never a value. Only the mark of
// staleness is not covered, because a store writes it into an existing frame. Any bytes in the mark
// can only make a value stale. A version above 1 is part of the value's name in the store. So
// programs that write different versions don't overwrite each other's values in turn.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

// Version is the version of the format that this program reads and writes.
const Version = 1

// MaxCarried is the size of the largest frame in a message or an outcome. It is large enough for
// most values, and small enough for a fleet in which every process waits.
const MaxCarried = 4 << 10

// HeaderSize is the size of the header. A frame without an extension and with an empty body has
// this size.
const HeaderSize = 80

// IDStart and IDEnd are the bounds of the load's id in a frame: frame[IDStart:IDEnd]. Stores
// compare these bytes to recognise a fill that was applied although its reply was lost.
const (
	IDStart = 2
	IDEnd   = 18
)

// MarkStart is the offset of the mark of staleness, which is the last field of the header.
const MarkStart = offMark

// Limits of the extension.
const (
	MaxTags = 64
	MaxTag  = 255
	MaxNote = 255
)

const (
	flagNull     = 1 << 0
	flagUnshared = 1 << 1

	offCreated    = 18
	offSoft       = 26
	offRevalidate = 34
	offIfError    = 42
	offTook       = 50
	offCodec      = 54
	offStamp      = 58
	offExtension  = 66
	offSum        = 68
	offMark       = 72
)

// The errors of frames. All of them mean that the frame is a miss.
var (
	ErrTruncated = errors.New("frame is shorter than its header")
	ErrVersion   = errors.New("frame has an unknown version")
	ErrFlags     = errors.New("frame has unknown flags")
	ErrChecksum  = errors.New("frame has a wrong checksum")
	ErrHeader    = errors.New("frame header contradicts itself")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is the decoded header of a frame. It describes the body.
type Header struct {
	ID       [16]byte
	Null     bool          // the null sentinel: the value does not exist at the origin
	Unshared bool          // the body is only for the next load
	Created  time.Time     // on the store's clock, in microseconds
	Soft     time.Duration // the value is fresh for this long after Created
	// For the time Revalidate after Soft, the value is served at once while it is refreshed. For
	// the time IfError after Soft, the value is served if a load fails.
	Revalidate, IfError time.Duration
	Took                time.Duration // how long the load took
	Codec               uint32        // fingerprint of the codec
	// Microseconds on the clock of the generations, read before the load began.
	Stamp  int64
	Marked time.Time // when it was marked stale; the zero Time: never
	Extension
}

// Extension is the extension of a frame, in encoded form. Both fields may be empty.
type Extension struct {
	Note []byte // note of an observer
	Tags Tags
}

// Hard returns how long after Created the value is kept.
func (h Header) Hard() time.Duration { return h.Soft + max(h.Revalidate, h.IfError) }

// Room returns a new frame with its extension, without a body, and with capacity to append a body.
// It is not a valid frame before [Seal] has written its header.
func Room(a Extension) []byte {
	size := 0
	if len(a.Note) > 0 || len(a.Tags) > 0 {
		size = 1 + len(a.Note) + len(a.Tags)
	}
	f := make([]byte, HeaderSize, 4*HeaderSize+size)
	binary.BigEndian.PutUint16(f[offExtension:], uint16(size))
	if size > 0 {
		f = append(f, byte(len(a.Note)))
		f = append(f, a.Note...)
		f = append(f, a.Tags...)
	}
	return f
}

// Seal turns f into a frame in place. f is a result of [Room] with a body appended, or already a
// frame. The extension doesn't change.
func Seal(f []byte, h Header) {
	clear(f[:offExtension])
	f[0] = Version
	if h.Null {
		f[1] |= flagNull
	}
	if h.Unshared {
		f[1] |= flagUnshared
	}
	copy(f[IDStart:IDEnd], h.ID[:])
	binary.BigEndian.PutUint64(f[offCreated:], uint64(h.Created.UnixMicro()))
	binary.BigEndian.PutUint64(f[offSoft:], micros(h.Soft))
	binary.BigEndian.PutUint64(f[offRevalidate:], micros(h.Revalidate))
	binary.BigEndian.PutUint64(f[offIfError:], micros(h.IfError))
	binary.BigEndian.PutUint32(f[offTook:], uint32(min(micros(h.Took), math.MaxUint32)))
	binary.BigEndian.PutUint32(f[offCodec:], h.Codec)
	binary.BigEndian.PutUint64(f[offStamp:], uint64(h.Stamp))
	copy(f[offMark:HeaderSize], Mark(h.Marked))
	binary.BigEndian.PutUint32(f[offSum:], sum(f))
}

// Mark returns the bytes that a store writes at MarkStart to mark a value stale.
func Mark(at time.Time) []byte {
	if at.IsZero() {
		return make([]byte, HeaderSize-offMark)
	}
	return binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro()))
}

// New returns a frame with this header and a copy of the body.
func New(h Header, body []byte) []byte {
	f := append(Room(h.Extension), body...)
	Seal(f, h)
	return f
}

// Parse returns the header and the body of a frame. The body shares memory with f. Any error means
// that f is not a value that this program may use.
func Parse(f []byte) (Header, []byte, error) { return parse(f, true) }

// MaxHead is the largest number of bytes before the body of a frame.
const MaxHead = HeaderSize + 1 + MaxNote + MaxTags*(1+MaxTag)

// Head returns the header of a frame. f is the beginning of the frame, so Head can't check that the
// frame is complete. If f ends before the end of the extension, Head returns ErrTruncated.
func Head(f []byte) (Header, error) {
	h, _, err := parse(f, false)
	return h, err
}

// parse parses a whole frame, or the beginning of a frame.
func parse(f []byte, whole bool) (Header, []byte, error) {
	if len(f) == 0 {
		return Header{}, nil, ErrTruncated
	}
	if f[0] != Version {
		return Header{}, nil, fmt.Errorf("%w: %d", ErrVersion, f[0])
	}
	if len(f) < HeaderSize {
		return Header{}, nil, ErrTruncated
	}
	if f[1]&^(flagNull|flagUnshared) != 0 {
		return Header{}, nil, ErrFlags
	}
	if whole && binary.BigEndian.Uint32(f[offSum:]) != sum(f) {
		return Header{}, nil, ErrChecksum
	}
	h := Header{
		Null:     f[1]&flagNull != 0,
		Unshared: f[1]&flagUnshared != 0,
		Created:  time.UnixMicro(int64(binary.BigEndian.Uint64(f[offCreated:]))),
		Took:     time.Duration(binary.BigEndian.Uint32(f[offTook:])) * time.Microsecond,
		Codec:    binary.BigEndian.Uint32(f[offCodec:]),
		Stamp:    int64(binary.BigEndian.Uint64(f[offStamp:])),
	}
	if mark := binary.BigEndian.Uint64(f[offMark:]); mark != 0 {
		h.Marked = time.UnixMicro(int64(mark))
	}
	copy(h.ID[:], f[IDStart:IDEnd])
	soft, revalidate, ifError := binary.BigEndian.Uint64(f[offSoft:]),
		binary.BigEndian.Uint64(f[offRevalidate:]), binary.BigEndian.Uint64(f[offIfError:])
	h.Soft, h.Revalidate, h.IfError = time.Duration(soft)*time.Microsecond,
		time.Duration(revalidate)*time.Microsecond, time.Duration(ifError)*time.Microsecond
	extension, body, ok := split(f)
	if !ok && !whole {
		return Header{}, nil, ErrTruncated
	}
	if len(extension) > 0 {
		h.Extension, ok = parseExtension(extension)
	}
	if !ok || max(soft, revalidate, ifError) > longest || h.Stamp < 0 ||
		(whole && h.Null && len(body) != 0) {
		return Header{}, nil, ErrHeader
	}
	return h, body, nil
}

// longest is the longest duration of a frame, in µs. The sum of two longer ones would overflow.
const longest = uint64(math.MaxInt64 / 2 / time.Microsecond)

// split returns the extension and the body.
func split(f []byte) (extension, body []byte, ok bool) {
	end := HeaderSize + int(binary.BigEndian.Uint16(f[offExtension:]))
	if end > len(f) {
		return nil, nil, false
	}
	return f[HeaderSize:end:end], f[end:len(f):len(f)], true
}

// parseExtension parses an extension that is not empty.
func parseExtension(b []byte) (a Extension, ok bool) {
	n := 1 + int(b[0])
	if len(b) < n || len(b) == 1 { // an extension without content must not have two encodings
		return a, false
	}
	a.Note, a.Tags = b[1:n:n], Tags(b[n:])
	return a, a.Tags.valid()
}

// ID returns the bytes at the place of the load's id, even if f is not a frame. If f is too short,
// ID returns fewer bytes, or none.
func ID(f []byte) []byte {
	if len(f) <= IDStart {
		return nil
	}
	return f[IDStart:min(IDEnd, len(f))]
}

func sum(f []byte) uint32 {
	return crc32.Update(crc32.Checksum(f[:offSum], castagnoli), castagnoli, f[HeaderSize:])
}

func micros(d time.Duration) uint64 {
	return uint64(min(max(d, 0), math.MaxInt64/2) / time.Microsecond)
}
