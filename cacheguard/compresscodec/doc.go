// Package compresscodec is a [cacheguard.Codec] that compresses what another codec encodes, with S2
// or Zstandard, using github.com/klauspost/compress. It is a module of its own:
//
//	go get github.com/cacheguard/cacheguard/cacheguard/compresscodec
//
//	codec, err := compresscodec.New(compresscodec.Options[Catalog]{Algorithm: compresscodec.Zstd})
//	catalogs, err := cacheguard.New(store, cacheguard.Options[Catalog]{Name: "catalog", Codec: codec})
//
// A value is stored uncompressed if it is smaller than [Options.Threshold], or if compression
// doesn't make it smaller. The first byte says how it is stored:
//
//	0  what the inner codec wrote
//	1  one S2 block
//	2  one Zstandard frame, with its content size and without a dictionary
//
// A codec reads values of either algorithm, so programs can change the algorithm one by one. The
// name of the inner codec is part of this codec's name. So if the inner codec's name changes, or if
// you start or stop using compression, the values that were stored before are misses. While
// programs with the old name and with the new one run side by side, they overwrite each other's
// values in turn; if this causes too many loads, give the cache another Name, too. If the inner
// codec has no name, changes of that codec are not noticed, as without compression.
//
// # Sizes
//
// cacheguard's MaxValueSize limits the stored bytes, which are the first byte and the compressed
// bytes. [Options.MaxDecoded] limits the bytes that the inner codec writes and reads. If a value is
// larger when it is written, Append returns an error that wraps cacheguard.ErrTooLarge: callers of
// a load get the value, but it is not stored. If compressed bytes decompress to more, Decode
// returns an error. Uncompressed values are read at any size. All programs that share a cache
// should have the same MaxDecoded: with a smaller one the largest compressed values are misses.
//
// # What is guaranteed
//
// If bytes declare too large a size, Decode returns an error before it allocates memory for them.
// It checks the declared size first. For Zstandard it also compares the declared size with the most
// that this number of bytes can hold. If the bytes hold more than they declare, also in further
// frames, decompression stops at the declared size. Whatever the bytes are, Decode allocates at
// most two and a half times MaxDecoded, and at most MaxDecoded if the bytes hold what they declare.
// The inner codec's memory is needed in addition. The codec runs nothing in the background and
// needn't be closed.
//
// # What is not
//
//   - An S2 block can declare up to MaxDecoded without holding it. Decode allocates the memory
//     before it can notice this.
//   - MaxDecoded limits one Decode, but many calls of Decode may run at the same time.
//   - No checksum is written, because the frame around each value has one.
//   - The compressed size can reveal secrets: if others can choose a part of a value, they may
//     learn something about the rest of it.
package compresscodec
