// Package protocodec is a cacheguard.Codec that stores Protocol Buffers messages, by
// google.golang.org/protobuf. It is a module of its own:
//
//	go get github.com/cacheguard/cacheguard/cacheguard/protocodec
//
//	products, err := cacheguard.New(store, cacheguard.Options[*pb.Product]{
//		Name: "product", Codec: protocodec.Codec[*pb.Product]{},
//	})
//
// V is what protoc-gen-go generates, with its pointer. Callers of one flight share a message, as
// they share any value: it must not be changed, and where the local tier should hand out copies,
// proto.CloneOf is what Local.Clone needs.
//
// # What is guaranteed
//
// The full name of the message is part of the codec's name, so what was stored for another message
// type is a miss, although its bytes might be parsed. Unknown fields are kept, so a schema can grow
// while old and new programs share a cache. Decode returns a new message each time, keeps nothing
// of its source and decodes at once also what is marked as lazy, so an error is seen there and not
// when a field is read. Messages nested deeper than 10,000 levels are an error, as are bytes cut
// short within a field.
//
// # What is not
//
//   - A nil message has no encoding: Append refuses it, so its callers get it and it is not stored.
//     For "does not exist" let the load return cacheguard.ErrNotFound.
//   - The bytes of equal messages may differ.
//   - Two bytes can become one empty message inside a message, so memory is bounded by the size of
//     the bytes times that of the largest message in V. MaxValueSize bounds the bytes.
//   - Bytes cut between two fields are a message with fewer fields. The frame around them has a
//     length and a checksum.
package protocodec
