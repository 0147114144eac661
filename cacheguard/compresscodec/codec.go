package compresscodec

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// The first byte of a stored value.
const (
	plainBody = 0
	s2Body    = 1
	zstdBody  = 2
)

// maxScratch is the size of the largest buffer that is kept and reused.
const maxScratch = 1 << 20

var (
	errEmpty   = errors.New("compresscodec: no bytes at all")
	errUnknown = errors.New("compresscodec: unknown first byte")
)

// Codec compresses what another codec encodes. Make it with [New]. It is safe for concurrent use.
type Codec[V any] struct {
	inner                 cacheguard.Codec[V]
	name                  string
	algorithm             Algorithm
	threshold, maxDecoded int

	encoder *zstd.Encoder // nil if it is not needed
	decoder *zstd.Decoder
	scratch sync.Pool // of *[]byte
}

// New makes a codec. Its error joins the errors of all invalid options.
func New[V any](opts Options[V]) (*Codec[V], error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Codec[V]{
		inner: opts.Inner, name: nameOver(opts.Inner), algorithm: opts.Algorithm,
		threshold: opts.Threshold, maxDecoded: opts.MaxDecoded,
		scratch: sync.Pool{New: func() any { return new([]byte) }},
	}
	if c.decoder, err = newDecoder(opts.MaxDecoded); err != nil {
		return nil, fmt.Errorf("compresscodec: %w", err)
	}
	if opts.Algorithm == Zstd {
		c.encoder, err = zstd.NewWriter(nil,
			zstd.WithEncoderCRC(false), // cacheguard's frame around the value has a checksum
			zstd.WithLowerEncoderMem(true),
			// Always writes the content size, which small frames would otherwise not have.
			zstd.WithSingleSegment(true),
		)
		if err != nil {
			return nil, fmt.Errorf("compresscodec: %w", err)
		}
	}
	return c, nil
}

// Append appends the encoded value to dst, compressed if that makes it smaller.
func (c *Codec[V]) Append(dst []byte, v V) ([]byte, error) {
	body := len(dst) + 1
	out, err := c.inner.Append(append(dst, plainBody), v)
	if err != nil {
		return dst, err
	}
	value := out[body:]
	if len(value) > c.maxDecoded {
		return dst,
			fmt.Errorf("%w: %d bytes uncompressed, MaxDecoded is %d", cacheguard.ErrTooLarge,
				len(value), c.maxDecoded)
	}
	if len(value) < c.threshold {
		return out, nil
	}
	room := c.scratch.Get().(*[]byte)
	kind, packed := c.compress((*room)[:0], value)
	if len(packed) < len(value) {
		out[body-1] = kind
		out = append(out[:body], packed...)
	}
	if cap(packed) <= maxScratch {
		*room = packed[:0]
		c.scratch.Put(room)
	}
	return out, nil
}

func (c *Codec[V]) compress(room, value []byte) (kind byte, packed []byte) {
	if c.algorithm == Zstd {
		return zstdBody, c.encoder.EncodeAll(value, room)
	}
	return s2Body, s2.Encode(slices.Grow(room, s2.MaxEncodedLen(len(value))), value)
}

// Decode returns the value that src holds, whichever algorithm it was compressed with. If the value
// was stored uncompressed, the inner codec gets a part of src and must not keep it. The default
// codec for []byte is an exception: its value is that part of src, as in package cacheguard.
func (c *Codec[V]) Decode(src []byte) (v V, err error) {
	if len(src) == 0 {
		return v, errEmpty
	}
	body := src[1:]
	switch src[0] {
	case plainBody:
	case s2Body:
		body, err = c.expandS2(body)
	case zstdBody:
		body, err = c.expandZstd(body)
	default:
		err = errUnknown
	}
	if err != nil {
		return v, err
	}
	return c.inner.Decode(body)
}

// Name returns the name of the format and of the inner codec. The algorithm is not part of the
// name, because each stored value names its algorithm itself.
func (c *Codec[V]) Name() string { return c.name }
