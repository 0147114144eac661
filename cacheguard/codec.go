package cacheguard

import (
	"encoding/json"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// Codec turns values into bytes and back. It is used by many goroutines at once. Decode must not
// keep or change src. A codec may have a method Name() string: values written under another name
// are misses for it, not errors.
type Codec[V any] interface {
	// Append appends the encoded value to dst.
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

// Name marks the format.
func (JSON[V]) Name() string { return "json" }

// rawBytes and rawString store []byte and string as they are.
type rawBytes struct{}

func (rawBytes) Append(dst, v []byte) ([]byte, error) { return append(dst, v...), nil }
func (rawBytes) Decode(src []byte) ([]byte, error)    { return src, nil }
func (rawBytes) Name() string                         { return "raw" }

type rawString struct{}

func (rawString) Append(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }
func (rawString) Decode(src []byte) (string, error)           { return string(src), nil }
func (rawString) Name() string                                { return "raw" }

func defaultCodec[V any]() Codec[V] {
	if c, ok := any(rawBytes{}).(Codec[V]); ok {
		return c
	}
	if c, ok := any(rawString{}).(Codec[V]); ok {
		return c
	}
	return JSON[V]{}
}

// fingerprint is what frames say about the codec that wrote them, and the version of the type.
func fingerprint(codec any, version int) uint32 {
	name := ""
	if named, ok := codec.(interface{ Name() string }); ok {
		name = named.Name()
	}
	return frame.Fingerprint(name, version)
}
