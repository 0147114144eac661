package compresscodec

import (
	"errors"
	"fmt"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Options are the options of [New]. The zero value of a field means its default.
type Options[V any] struct {
	// Inner encodes values into the bytes that are compressed, and decodes them. Default: the
	// default codec of cacheguard.Options, which is JSON, but stores string and []byte unchanged.
	Inner cacheguard.Codec[V]

	// Algorithm compresses new values. Values of both algorithms can be read. Default [S2].
	Algorithm Algorithm

	// Threshold is the size of an encoded value in bytes below which the value is stored
	// uncompressed. Default 1 KiB. Negative: every value is compressed if that makes it smaller.
	Threshold int

	// MaxDecoded is the largest size of an encoded value in bytes, before compression. If a value
	// is larger, its callers get it, but it is not stored; bytes that decompress to more are
	// refused. Default 64 MiB; at most 1 GiB.
	MaxDecoded int
}

// Algorithm is a compression algorithm.
type Algorithm uint8

const (
	// S2 is the faster algorithm.
	S2 Algorithm = iota
	// Zstd gives the smaller size.
	Zstd
)

// String returns the algorithm's name.
func (a Algorithm) String() string {
	switch a {
	case S2:
		return "S2"
	case Zstd:
		return "Zstd"
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

const (
	defaultThreshold  = 1 << 10
	defaultMaxDecoded = 64 << 20
	mostMaxDecoded    = 1 << 30 // both formats and an int of 32 bits can represent larger sizes
)

// withDefaults returns the options with every default filled in, or all errors of the options,
// joined.
func (o Options[V]) withDefaults() (Options[V], error) {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("compresscodec: Options."+format, args...))
	}
	if o.Inner == nil {
		o.Inner = defaultInner[V]()
	}
	if o.Algorithm > Zstd {
		wrong("Algorithm is %d, which is none", uint8(o.Algorithm))
	}
	switch {
	case o.Threshold == 0:
		o.Threshold = defaultThreshold
	case o.Threshold < 0:
		o.Threshold = 0
	}
	switch {
	case o.MaxDecoded == 0:
		o.MaxDecoded = defaultMaxDecoded
	case o.MaxDecoded < 0:
		wrong("MaxDecoded is %d, it can't be negative", o.MaxDecoded)
	case o.MaxDecoded > mostMaxDecoded:
		wrong("MaxDecoded is %d, it must be at most %d", o.MaxDecoded, mostMaxDecoded)
	}
	return o, errors.Join(errs...)
}
