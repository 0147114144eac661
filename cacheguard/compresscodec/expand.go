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

// Limits of the blocks in a Zstandard frame, from RFC 8878.
const (
	zstdBlockMost  = 128 << 10 // largest number of bytes that one block holds, section 3.1.1.2.4
	zstdBlockLeast = 4         // smallest block with content: header and one byte, section 3.1.1.2
)

// newDecoder makes a decoder for whole frames. It doesn't decode streams, so it has no goroutines.
func newDecoder(maxDecoded int) (*zstd.Decoder, error) {
	// No frame has a smaller window, however little it holds.
	window := uint64(max(maxDecoded, zstd.MinWindowSize))
	return zstd.NewReader(nil,
		// There are as many calls at a time as processors; further calls wait.
		zstd.WithDecoderConcurrency(0),
		zstd.WithDecoderMaxMemory(window),
		zstd.WithDecoderMaxWindow(window),
		// The decoder fails if the content doesn't fit into the buffer, whatever size the bytes
		// declare.
		zstd.WithDecodeAllCapLimit(true),
	)
}

// expandS2 decompresses a block. The size of the content is not known before, but it can't be more
// than the block declares.
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

// expandZstd decompresses one frame. This package writes only frames that declare their content
// size, so expandZstd refuses all others. A frame without a content size may hold any number of
// bytes, and each of several frames can claim the memory again.
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
	const slack = 16 // with less free room, the decoder writes the last bytes one by one
	out, err := c.decoder.DecodeAll(src, make([]byte, 0, int(size)+slack))
	switch {
	case err != nil:
		return nil, fmt.Errorf("compresscodec: %w", err)
	case uint64(len(out)) != size:
		return nil, errSize
	}
	return out, nil
}
