package cacheguard

import (
	"encoding/json"
	"unsafe"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// Codec turns values into bytes and back. Many goroutines use it at the same time. Decode must not
// change src, and the codec must not keep src. But the decoded value may share memory with src, as
// a []byte may. Neither method may call the cache, because the cache waits for the codec: a Get of
// the same key would wait for itself. A codec may have a method Name() string. If a codec has this
// method, values written by a codec with another name are misses, not errors.
type Codec[V any] interface {
	// Append appends the encoded value to dst. If Append loses the bytes of dst, the value is not
	// stored.
	Append(dst []byte, v V) ([]byte, error)
	Decode(src []byte) (V, error)
}

// JSON is the default codec, encoding/json.
type JSON[V any] struct{}

func (JSON[V]) Append(dst []byte, v V) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return dst, err
	}
	return append(dst, b...), nil
}

func (JSON[V]) Decode(src []byte) (v V, err error) {
	err = json.Unmarshal(src, &v)
	return v, err
}

// Name returns "json". Frames record it, so that values of another codec are misses.
func (JSON[V]) Name() string { return "json" }

// rawBytes and rawString store []byte and string as they are. JSON would encode bytes as base64 and
// escape strings. A decoded value shares the memory of the frame, which nobody changes. So it needs
// no copy, but keeps the whole frame in memory. A string shorter than leastShared is copied
// instead, because its frame may be many times as long as the string.
type rawBytes struct{}

func (rawBytes) Append(dst, v []byte) ([]byte, error) { return append(dst, v...), nil }
func (rawBytes) Decode(src []byte) ([]byte, error)    { return src, nil }
func (rawBytes) Name() string                         { return "raw" }

type rawString struct{}

func (rawString) Append(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }
func (rawString) Name() string                                { return "raw" }
func (rawString) Decode(src []byte) (string, error) {
	if len(src) < leastShared {
		return string(src), nil
	}
	return unsafe.String(unsafe.SliceData(src), len(src)), nil
}

// leastShared is the length from which a string is several times as long as the rest of its frame.
const leastShared = 256

// defaultCodec returns the codec for a type. It is used if Options.Codec is nil.
func defaultCodec[V any]() Codec[V] {
	if c, ok := any(rawBytes{}).(Codec[V]); ok {
		return c
	}
	if c, ok := any(rawString{}).(Codec[V]); ok {
		return c
	}
	return JSON[V]{}
}

// fingerprint identifies a codec and Options.Version. A frame records the fingerprint with which it
// was written. A value with a different fingerprint is a miss, because it may decode into something
// wrong without an error.
func fingerprint(codec any, version int) uint32 {
	name := ""
	if named, ok := codec.(interface{ Name() string }); ok {
		name = named.Name()
	}
	return frame.Fingerprint(name, version)
}
