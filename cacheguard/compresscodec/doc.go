// Package compresscodec is a cacheguard.Codec that compresses what another codec encodes, with S2
// or Zstandard, by github.com/klauspost/compress. It is a module of its own:
//
//	go get github.com/cacheguard/cacheguard/cacheguard/compresscodec
//
//	codec, err := compresscodec.New(compresscodec.Options[Catalog]{Algorithm: compresscodec.Zstd})
//	catalogs, err := cacheguard.New(store, cacheguard.Options[Catalog]{Name: "catalog", Codec: codec})
//
// A value is stored as it is below Options.Threshold, and where compressing doesn't make it
// smaller. The first byte says which it is:
//
//	0  what the inner codec wrote
//	1  one S2 block
//	2  one Zstandard frame, with its content size and without a dictionary
//
// So whatever the algorithm of a codec is, it reads what one with the other wrote: programs can
// change over one by one. The inner codec's name is part of this one's: when that changes, or when
// compression begins or ends, what was stored before is a miss. While programs with the old name
// and with the new one run side by side, they overwrite each other's values in turn; where those
// loads are too many, give the cache another Name too. If the inner codec has no name, its changes
// go unseen, as they do without compression.
//
// # Sizes
//
// cacheguard's MaxValueSize counts what is stored, so here the compressed bytes, with the first
// one. Options.MaxDecoded counts what the inner codec writes and reads, in both directions: a
// larger value goes to its callers and is not stored, with an error that wraps
// cacheguard.ErrTooLarge, and larger bytes are an error. All programs that share a cache should
// have the same MaxDecoded: to one with less, the largest values are misses.
//
// # What is guaranteed
//
// What is too large to decompress is an error before any memory is taken for it: the size that the
// bytes declare is checked first, for Zstandard also against what so many bytes could hold at most.
// What turns out to hold more than it declared, by further frames too, is cut off there. Bytes that
// declare too much take next to nothing. Whatever they are, Decode takes no more than two and a
// half times MaxDecoded, and once MaxDecoded if they hold what they declare; then comes what the
// inner codec needs. Nothing runs in the background, and there is nothing to close.
//
// # What is not
//
//   - An S2 block can declare up to MaxDecoded without holding it, and the memory is taken before
//     that is seen.
//   - MaxDecoded is for one Decode. As many run at once as there are callers that read.
//   - Checksums: none is written, for the frame around each value has one.
//   - Secrets: what a value holds beside what others can choose may show in its compressed size.
package compresscodec
