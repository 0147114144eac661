package compresscodec

import (
	"errors"
	"fmt"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Options are the options of New. The zero Options are ready to use.
type Options[V any] struct {
	// Inner turns values into the bytes that are compressed, and back. Default: that of
	// cacheguard.Options, JSON, and string and []byte as they are.
	Inner cacheguard.Codec[V]

	// Algorithm is what new values are compressed with; whatever it is, both are read. Default S2.
	Algorithm Algorithm

	// Threshold is the size in bytes, encoded, below which a value is stored as it is. Default 1
	// KiB; negative: none, every value is tried.
	Threshold int

	// MaxDecoded is the size in bytes, encoded and not compressed, above which a value is given to
	// its callers but not stored, and which nothing is decompressed beyond. Default 64 MiB; at most
	// 1 GiB.
	MaxDecoded int
}

// Algorithm is a way to compress.
type Algorithm uint8

const (
	// S2 costs the least time.
	S2 Algorithm = iota
	// Zstd makes the smallest bytes.
	Zstd
)

// String is the algorithm's name.
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
	mostMaxDecoded    = 1 << 30 // below what any of the formats and a 32-bit int can count
)

// withDefaults returns the options with every default in place, or everything that is wrong with
// them.
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
		wrong("MaxDecoded is %d, above the most of %d", o.MaxDecoded, mostMaxDecoded)
	}
	return o, errors.Join(errs...)
}
