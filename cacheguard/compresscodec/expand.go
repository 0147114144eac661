package compresscodec

import (
	"errors"
	"fmt"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

var (
	errBomb  = errors.New("compresscodec: bytes hold more than MaxDecoded")
	errFrame = errors.New("compresscodec: not the kind of Zstandard frame that is written here")
	errSize  = errors.New("compresscodec: bytes don't hold what they declare")
)

// What RFC 8878 says about blocks, which a frame consists of.
const (
	zstdBlockMost  = 128 << 10 // bytes that come out of one, section 3.1.1.2.4
	zstdBlockLeast = 4         // bytes that one takes which has any: its head and one to be repeated, section 3.1.1.2
)

// newDecoder makes a decoder for whole frames, not for streams: it has no goroutines.
func newDecoder(maxDecoded int) (*zstd.Decoder, error) {
	window := uint64(max(maxDecoded, zstd.MinWindowSize)) // no frame has less, however little it holds
	return zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(0), // as many at a time as there are processors; the others wait
		zstd.WithDecoderMaxMemory(window),
		zstd.WithDecoderMaxWindow(window),
		zstd.WithDecodeAllCapLimit(true), // stops where the room is full, whatever the bytes say
	)
}

// expandS2 decompresses a block. What that holds is not known before it is done, but it can't be
// more than declared.
func (c *Codec[V]) expandS2(src []byte) ([]byte, error) {
	size, err := s2.DecodedLen(src)
	switch {
	case err != nil:
		return nil, fmt.Errorf("compresscodec: %w", err)
	case size > c.maxDecoded:
		return nil, fmt.Errorf("%w: %d bytes", errBomb, size)
	}
	out, err := s2.Decode(make([]byte, size), src)
	if err != nil {
		return nil, fmt.Errorf("compresscodec: %w", err)
	}
	return out, nil
}

// expandZstd decompresses one frame. Those written here say how much they hold, so no other is
// read: one that doesn't say so may hold anything, and where there are several each can claim the
// memory anew.
func (c *Codec[V]) expandZstd(src []byte) ([]byte, error) {
	var head zstd.Header
	if err := head.Decode(src); err != nil {
		return nil, fmt.Errorf("compresscodec: %w", err)
	}
	size := head.FrameContentSize
	switch {
	case head.Skippable, !head.HasFCS, head.DictionaryID != 0:
		return nil, errFrame
	case size > uint64(c.maxDecoded):
		return nil, fmt.Errorf("%w: %d bytes", errBomb, size)
	case size > uint64(len(src))/zstdBlockLeast*zstdBlockMost:
		return nil, errSize
	}
	const slack = 16 // with less behind them, the decoder takes the last bytes one by one
	out, err := c.decoder.DecodeAll(src, make([]byte, 0, int(size)+slack))
	switch {
	case err != nil:
		return nil, fmt.Errorf("compresscodec: %w", err)
	case uint64(len(out)) != size:
		return nil, errSize
	}
	return out, nil
}
