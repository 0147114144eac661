// Package protocodec is a [cacheguard.Codec] that stores Protocol Buffers messages, with
// google.golang.org/protobuf. It is a module of its own:
//
//	go get github.com/cacheguard/cacheguard/cacheguard/protocodec
//
//	products, err := cacheguard.New(store, cacheguard.Options[*pb.Product]{
//		Name: "product", Codec: protocodec.Codec[*pb.Product]{},
//	})
//
// V is a pointer to a type that protoc-gen-go generates. Callers of one flight share a message, as
// they share any value, so they must not change it. If the local tier should return copies, set
// Local.Clone to proto.CloneOf.
//
// # What is guaranteed
//
// The full name of the message is part of the codec's name. So a value that was stored for another
// message type is a miss, even if its bytes could be parsed. Unknown fields are kept, so a schema
// can grow while old and new programs share a cache. Decode returns a new message each time and
// keeps no reference to its source. It also decodes fields that are marked as lazy, so Decode
// itself returns their errors, and not a later read of the field. Messages nested deeper than
// 10,000 levels are an error, and so are bytes that were cut short within a field.
//
// # What is not
//
//   - A nil message has no encoding: Append refuses it, so the callers get it and it is not stored.
//     If something does not exist, let the load return cacheguard.ErrNotFound.
//   - The bytes of equal messages may differ.
//   - Two bytes can become one empty message inside a message, so the memory of a message is
//     limited only by the number of bytes times the size of the largest message in V. MaxValueSize
//     limits the number of bytes.
//   - Bytes that were cut between two fields are decoded as a message with fewer fields. The frame
//     around each value protects against that, with a length and a checksum.
package protocodec
