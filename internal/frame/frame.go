// Package frame is the value format: what stands in the store under a key.
//
// A frame is a header of fixed size and a body. All integers are big-endian.
//
//	offset size
//	     0    1  version, 1
//	     1    1  flags: bit 0 null sentinel (body is empty); all others must be zero
//	     2   16  id of the load that made the value
//	    18    8  created-at, microseconds since 1970 on the store's clock
//	    26    8  soft TTL in microseconds: fresh until created-at plus this
//	    34    8  stale-while-revalidate in microseconds: after the soft TTL, served at once while it is refreshed
//	    42    8  stale-if-error in microseconds: after the soft TTL, served when a load fails
//	    50    4  how long the load took, in microseconds (saturating)
//	    54    4  fingerprint of the codec that wrote the body, 0 for one without a name
//	    58    4  CRC-32C (Castagnoli) of the whole frame with these four bytes left out
//	    62       body
//
// The windows are those of the writer, so that a value is treated alike by every process. It is kept for the hard TTL,
// the soft TTL and the larger of the two.
//
// "Does not exist" is a flag and not a value, so no body can imitate it. The checksum covers the header and the body:
// a frame that was cut, flipped or written by something else is an error here and a miss in the loader, never a
// value. The version is part of the value's name in the store once it is above 1, so that programs that write
// different versions don't overwrite each other's values in turn.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

// Version is the format this program reads and writes.
const Version = 1

// HeaderSize is the length of a frame with an empty body.
const HeaderSize = 62

// IDStart and IDEnd bound the load's id inside a frame: frame[IDStart:IDEnd]. Stores compare these bytes to recognise
// a fill that was applied although its reply was lost.
const (
	IDStart = 2
	IDEnd   = 18
)

const (
	flagNull = 1 << 0

	offCreated    = 18
	offSoft       = 26
	offRevalidate = 34
	offIfError    = 42
	offTook       = 50
	offCodec      = 54
	offSum        = 58
)

// Frame errors. All of them mean: treat it as a miss.
var (
	ErrTruncated = errors.New("frame is shorter than its header")
	ErrVersion   = errors.New("frame has an unknown version")
	ErrFlags     = errors.New("frame has unknown flags")
	ErrChecksum  = errors.New("frame has a wrong checksum")
	ErrHeader    = errors.New("frame header contradicts itself")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is what a frame says about its body.
type Header struct {
	ID      [16]byte
	Null    bool          // the null sentinel: the origin says this does not exist
	Created time.Time     // on the store's clock, microseconds
	Soft    time.Duration // fresh for this long after Created
	// After Soft: served at once while it is refreshed, and served when a load fails.
	Revalidate, IfError time.Duration
	Took                time.Duration // how long the load took
	Codec               uint32        // fingerprint of the codec
}

// Hard is how long after Created the value is kept.
func (h Header) Hard() time.Duration { return h.Soft + max(h.Revalidate, h.IfError) }

// Seal makes a frame of f in place: f is HeaderSize bytes of room followed by the body, and the header is written
// into that room.
func Seal(f []byte, h Header) {
	clear(f[:HeaderSize])
	f[0] = Version
	if h.Null {
		f[1] |= flagNull
	}
	copy(f[IDStart:IDEnd], h.ID[:])
	binary.BigEndian.PutUint64(f[offCreated:], uint64(h.Created.UnixMicro()))
	binary.BigEndian.PutUint64(f[offSoft:], micros(h.Soft))
	binary.BigEndian.PutUint64(f[offRevalidate:], micros(h.Revalidate))
	binary.BigEndian.PutUint64(f[offIfError:], micros(h.IfError))
	binary.BigEndian.PutUint32(f[offTook:], uint32(min(micros(h.Took), math.MaxUint32)))
	binary.BigEndian.PutUint32(f[offCodec:], h.Codec)
	binary.BigEndian.PutUint32(f[offSum:], sum(f))
}

// New returns a frame with this header and a copy of the body.
func New(h Header, body []byte) []byte {
	f := make([]byte, HeaderSize+len(body))
	copy(f[HeaderSize:], body)
	Seal(f, h)
	return f
}

// Parse returns the header and the body of a frame. The body aliases f. Any error means that f is not a value that
// this program may use.
func Parse(f []byte) (Header, []byte, error) {
	if len(f) == 0 {
		return Header{}, nil, ErrTruncated
	}
	if f[0] != Version {
		return Header{}, nil, fmt.Errorf("%w: %d", ErrVersion, f[0])
	}
	if len(f) < HeaderSize {
		return Header{}, nil, ErrTruncated
	}
	if f[1]&^flagNull != 0 {
		return Header{}, nil, ErrFlags
	}
	if binary.BigEndian.Uint32(f[offSum:]) != sum(f) {
		return Header{}, nil, ErrChecksum
	}
	h := Header{
		Null:    f[1]&flagNull != 0,
		Created: time.UnixMicro(int64(binary.BigEndian.Uint64(f[offCreated:]))),
		Took:    time.Duration(binary.BigEndian.Uint32(f[offTook:])) * time.Microsecond,
		Codec:   binary.BigEndian.Uint32(f[offCodec:]),
	}
	copy(h.ID[:], f[IDStart:IDEnd])
	var ok1, ok2, ok3 bool
	h.Soft, ok1 = duration(binary.BigEndian.Uint64(f[offSoft:]))
	h.Revalidate, ok2 = duration(binary.BigEndian.Uint64(f[offRevalidate:]))
	h.IfError, ok3 = duration(binary.BigEndian.Uint64(f[offIfError:]))
	body := f[HeaderSize:len(f):len(f)]
	if !ok1 || !ok2 || !ok3 || (h.Null && len(body) != 0) {
		return Header{}, nil, ErrHeader
	}
	return h, body, nil
}

// ID returns the bytes that stand where a frame has the load's id, also of something that is no frame: fewer bytes,
// or none, where it is too short.
func ID(f []byte) []byte {
	if len(f) <= IDStart {
		return nil
	}
	return f[IDStart:min(IDEnd, len(f))]
}

func sum(f []byte) uint32 {
	return crc32.Update(crc32.Checksum(f[:offSum], castagnoli), castagnoli, f[offSum+4:])
}

func micros(d time.Duration) uint64 {
	return uint64(min(max(d, 0), math.MaxInt64/2) / time.Microsecond)
}

// duration refuses what would make a sum of two overflow.
func duration(us uint64) (time.Duration, bool) {
	if us > uint64(math.MaxInt64/2/time.Microsecond) {
		return 0, false
	}
	return time.Duration(us) * time.Microsecond, true
}
