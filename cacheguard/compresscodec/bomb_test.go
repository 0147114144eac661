package compresscodec_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/compress/s2"

	"github.com/cacheguard/cacheguard/cacheguard/codectest"
	"github.com/cacheguard/cacheguard/cacheguard/compresscodec"
)

// frame is a Zstandard frame as in RFC 8878. The test writes it by hand, so that its declarations
// can be wrong.
type frame struct {
	content  int64 // the declared size; negative: no size is declared
	window   byte  // the window descriptor, if no size is declared
	dict     bool
	blocks   int // the number of blocks; each holds blockSize bytes and has 4 bytes
	unending bool
}

const blockSize = 128 << 10

func (f frame) bytes() []byte {
	b := []byte{0x28, 0xb5, 0x2f, 0xfd}
	var descriptor byte
	if f.dict {
		descriptor |= 1
	}
	if f.content >= 0 {
		descriptor |= 3<<6 | 1<<5 // eight bytes, single segment
	}
	b = append(b, descriptor)
	if f.content < 0 {
		b = append(b, f.window)
	}
	if f.dict {
		b = append(b, 7)
	}
	if f.content >= 0 {
		b = binary.LittleEndian.AppendUint64(b, uint64(f.content))
	}
	for i := range f.blocks {
		const repeated = 1
		head := uint32(repeated<<1 | blockSize<<3)
		if i == f.blocks-1 && !f.unending {
			head |= 1
		}
		b = append(b, byte(head), byte(head>>8), byte(head>>16), 'x')
	}
	return b
}

// skippable returns a skippable frame that declares this number of bytes.
func skippable(declared uint32, body ...byte) []byte {
	return append(binary.LittleEndian.AppendUint32([]byte{0x50, 0x2a, 0x4d, 0x18}, declared),
		body...)
}

// s2Block returns an S2 block that declares this number of bytes and has the given bytes.
func s2Block(declared uint64, body ...byte) []byte {
	return append(binary.AppendUvarint(nil, declared), body...)
}

// If the bytes hold or declare too much, Decode returns an error that needs almost no memory.
func TestBombs(t *testing.T) {
	const (
		most   = 1 << 20
		little = 64 << 10 // the memory for errors, tables of decoders and the test itself
		s2Body = 1
		zstd   = 2
	)
	eightBlocks := frame{content: most, blocks: 8}.bytes() // the largest allowed content
	oneByte := []byte{0x28, 0xb5, 0x2f, 0xfd, 1 << 5, 1, 1 | 1<<3, 0, 0, 'y'}
	whole := s2.Encode(nil, make([]byte, 16<<20))
	_, head := binary.Uvarint(whole)
	longRepeat := whole[head:]
	if len(longRepeat) > 100 {
		t.Fatalf("16 MiB of zeros are %d bytes", len(longRepeat))
	}
	var codecs []*compresscodec.Codec[[]byte]
	for _, a := range algorithms {
		codec := open(t, compresscodec.Options[[]byte]{Algorithm: a, MaxDecoded: most})
		codecs = append(codecs, codec)
		// Each of the decoders inside the codec allocates its tables at its first use.
		for range runtime.GOMAXPROCS(0) {
			if got, err := codec.Decode(append([]byte{zstd}, eightBlocks...)); err != nil ||
				len(got) != most {
				t.Fatalf("frames written by hand are not what they should be: %d bytes, %v",
					len(got), err)
			}
			if got, err := codec.Decode(append([]byte{zstd}, oneByte...)); err != nil ||
				len(got) != 1 {
				t.Fatalf("frames written by hand are not what they should be: %d bytes, %v",
					len(got), err)
			}
		}
	}
	for _, c := range []struct {
		name  string
		kind  byte
		src   []byte
		costs uint64
	}{
		{
			"zstd: 1 GiB in 32 KiB, and says so", zstd,
			frame{content: 1 << 30, blocks: 8192}.bytes(), little,
		},
		{
			"zstd: 32 MiB in 1 KiB, and says so", zstd,
			frame{content: 32 << 20, blocks: 256}.bytes(), little,
		},
		{
			"zstd: 32 MiB in 1 KiB, and doesn't say", zstd,
			frame{content: -1, window: 0x80, blocks: 256}.bytes(), little,
		},
		{
			"zstd: a window of 3.75 TiB", zstd, frame{content: -1, window: 0xff, blocks: 1}.bytes(),
			little,
		},
		{
			"zstd: 32 MiB, and says one byte", zstd, frame{content: 1, blocks: 256}.bytes(),
			2 * blockSize,
		},
		{
			"zstd: 32 MiB, and says one block", zstd,
			frame{content: blockSize, blocks: 256}.bytes(), 6 * blockSize,
		},
		{"zstd: nothing, and says 1 MiB", zstd, frame{content: most}.bytes(), little},
		{
			"zstd: one block, and says 1 MiB", zstd, frame{content: most, blocks: 1}.bytes(),
			6 * blockSize,
		},
		{
			"zstd: says all that can be said", zstd,
			frame{content: math.MaxInt64, blocks: 256}.bytes(), little,
		},
		{
			"zstd: no last block", zstd, frame{content: most, blocks: 8, unending: true}.bytes(),
			most + 2*blockSize,
		},
		{
			"zstd: a hundred frames that are fine alone", zstd, bytes.Repeat(eightBlocks, 100),
			most + 2*blockSize,
		},
		{
			"zstd: one block more than it says", zstd, frame{content: most, blocks: 9}.bytes(),
			most * 5 / 2,
		},
		{
			"zstd: a block, then a frame of one byte", zstd,
			append(frame{content: blockSize, blocks: 1}.bytes(), oneByte...), 6 * blockSize,
		},
		{
			"zstd: a thousand frames of a block", zstd,
			bytes.Repeat(frame{content: blockSize, blocks: 1}.bytes(), 1000), 6 * blockSize,
		},
		{
			"zstd: a small frame, then one that doesn't say", zstd,
			append(frame{content: blockSize, blocks: 1}.bytes(),
				frame{content: -1, window: 0x80, blocks: 256}.bytes()...), 6 * blockSize,
		},
		{
			"zstd: to be skipped, then a bomb", zstd,
			append(skippable(1, 0), frame{content: 1 << 30, blocks: 256}.bytes()...), little,
		},
		{
			"zstd: a block, to be skipped, then a bomb", zstd,
			slices.Concat(frame{content: blockSize, blocks: 1}.bytes(), skippable(1, 0),
				frame{content: 1 << 30, blocks: 256}.bytes()), 6 * blockSize,
		},
		{"zstd: only to be skipped", zstd, skippable(1, 0), little},
		{"zstd: to be skipped, 4 GiB", zstd, skippable(math.MaxUint32), little},
		{
			"zstd: a block, then 4 GiB to be skipped", zstd,
			append(frame{content: blockSize, blocks: 1}.bytes(), skippable(math.MaxUint32)...),
			6 * blockSize,
		},
		{
			"zstd: a dictionary", zstd, frame{content: blockSize, dict: true, blocks: 1}.bytes(),
			little,
		},
		{"zstd: nothing at all", zstd, nil, little},
		{"s2: says 4 GiB", s2Body, s2Block(math.MaxUint32, 0, 'x'), little},
		{"s2: says 1 GiB", s2Body, s2Block(1<<30, 0, 'x'), little},
		{"s2: says more than 32 bits", s2Body, s2Block(1<<40, 0, 'x'), little},
		{"s2: 16 MiB in 100 bytes, and says so", s2Body, s2Block(16<<20, longRepeat...), little},
		{"s2: 16 MiB, and says one byte", s2Body, s2Block(1, longRepeat...), little},
		{"s2: one byte, and says 1 MiB", s2Body, s2Block(most, 0, 'x'), most + little},
		{"s2: one byte more than there may be", s2Body, s2.Encode(nil, text(most+1)), little},
		{"s2: nothing at all", s2Body, nil, little},
		{"s2: an unending length", s2Body, bytes.Repeat([]byte{0xff}, 100), little},
		{"an unknown first byte", 3, text(100), little},
	} {
		for _, codec := range codecs {
			src := append([]byte{c.kind}, c.src...)
			var got []byte
			var err error
			costs := codectest.Allocated(func() { got, err = codec.Decode(src) })
			if err == nil || got != nil {
				t.Errorf("%s: %d bytes, %v; want an error", c.name, len(got), err)
			}
			if costs > c.costs {
				t.Errorf("%s: %d bytes took %d bytes of memory, want at most %d (%v)", c.name,
					len(src), costs, c.costs, err)
			}
		}
	}
	codec := open(t, compresscodec.Options[[]byte]{})
	if _, err := codec.Decode(nil); err == nil {
		t.Error("no bytes at all are a value")
	}
}
