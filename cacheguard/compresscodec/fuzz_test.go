package compresscodec_test

import (
	"bytes"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard/codectest"
	"github.com/cacheguard/cacheguard/cacheguard/compresscodec"
)

// FuzzDecode shows that Decode returns a value or an error for any bytes, and needs bounded memory.
func FuzzDecode(f *testing.F) {
	const most = 256 << 10
	codec := open(f, compresscodec.Options[[]byte]{MaxDecoded: most, Threshold: -1})
	for _, a := range algorithms {
		writer := open(f, compresscodec.Options[[]byte]{Algorithm: a, Threshold: -1})
		for _, size := range []int{0, 1, 100, 3000} {
			out, err := writer.Append(nil, text(size))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(out)
		}
	}
	f.Add(append([]byte{2}, frame{content: 1 << 30, blocks: 100}.bytes()...))
	f.Add(append([]byte{2}, frame{content: -1, window: 0x80, blocks: 100}.bytes()...))
	f.Add(append([]byte{2}, bytes.Repeat(frame{content: blockSize, blocks: 1}.bytes(), 20)...))
	f.Add(append([]byte{1}, s2Block(1<<30, 0, 'x')...))
	f.Fuzz(func(t *testing.T, src []byte) {
		var got []byte
		var err error
		// The constant is for the decoder's tables, and for the fuzzer, which runs at the same
		// time.
		if costs := codectest.Allocated(func() { got, err = codec.Decode(src) }); costs > 4*most+
			8<<20 {
			t.Fatalf("%d bytes took %d", len(src), costs)
		}
		if err != nil {
			return
		}
		if len(src)-1 <= most && len(got) > most {
			t.Fatalf("%d bytes became %d, above MaxDecoded", len(src), len(got))
		}
		if len(got) > most {
			return // stored uncompressed: no larger than the bytes that were there already
		}
		again, err := codec.Append(nil, got)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := codec.Decode(again); err != nil || !bytes.Equal(back, got) {
			t.Fatalf("%d bytes came back as %d, %v", len(got), len(back), err)
		}
	})
}

// FuzzRoundTrip shows that any value is decoded as it was encoded, with either algorithm.
func FuzzRoundTrip(f *testing.F) {
	var codecs []*compresscodec.Codec[[]byte]
	for _, a := range algorithms {
		codecs = append(codecs, open(f, compresscodec.Options[[]byte]{Algorithm: a, Threshold: -1}))
	}
	f.Add([]byte(nil), uint16(0))
	f.Add([]byte("abc"), uint16(3))
	f.Add(noise(300), uint16(300))
	f.Fuzz(func(t *testing.T, piece []byte, times uint16) {
		value := bytes.Repeat(piece, int(times)%512)
		for i, writer := range codecs {
			stored, err := writer.Append(nil, value)
			if err != nil || len(stored) > len(value)+1 {
				t.Fatalf("%d bytes became %d, %v", len(value), len(stored), err)
			}
			if got, err := codecs[1-i].Decode(stored); err != nil || !bytes.Equal(got, value) {
				t.Fatalf("%d bytes came back as %d, %v", len(value), len(got), err)
			}
		}
	})
}
