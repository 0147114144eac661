package compresscodec

import "github.com/cacheguard/cacheguard/cacheguard"

// rawBytes and rawString encode these types in the same way as cacheguard's default codec, and have
// the same name.
type rawBytes struct{}

func (rawBytes) Append(dst, v []byte) ([]byte, error) { return append(dst, v...), nil }
func (rawBytes) Decode(src []byte) ([]byte, error)    { return src, nil }
func (rawBytes) Name() string                         { return "raw" }

type rawString struct{}

func (rawString) Append(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }
func (rawString) Decode(src []byte) (string, error)           { return string(src), nil }
func (rawString) Name() string                                { return "raw" }

func defaultInner[V any]() cacheguard.Codec[V] {
	if c, ok := any(rawBytes{}).(cacheguard.Codec[V]); ok {
		return c
	}
	if c, ok := any(rawString{}).(cacheguard.Codec[V]); ok {
		return c
	}
	return cacheguard.JSON[V]{}
}

// nameOver returns the name of a codec that compresses the output of inner. If inner has no name,
// the result has no parentheses, so that it differs from the result for a codec whose name is
// empty.
func nameOver(inner any) string {
	if named, ok := inner.(interface{ Name() string }); ok {
		return "compress(" + named.Name() + ")"
	}
	return "compress"
}
