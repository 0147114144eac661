// Package msgpackcodec is a [cacheguard.Codec] that stores values as MessagePack, with
// github.com/vmihailenco/msgpack/v5. It is a module of its own:
//
//	go get github.com/cacheguard/cacheguard/cacheguard/msgpackcodec
//
//	products, err := cacheguard.New(store, cacheguard.Options[Product]{
//		Name: "product", Codec: msgpackcodec.Codec[Product]{},
//	})
//
// Field names and options come from `msgpack:"..."` tags. A field without this tag has its name in
// Go, never the name in its json tag. If a type has methods of its own for MessagePack, for binary
// or for text, the codec uses them. If a type has several of these, the codec uses the first kind
// in this order. A field that only the writer or only the reader knows is skipped, as with JSON, so
// a struct can grow while old and new programs share a cache.
//
// This library was chosen over libraries with more frequent releases, because it restores the
// unexported fields of types such as big.Int or netip.Addr. The library trusts the lengths that it
// reads and doesn't limit nesting: five bytes can make it allocate 64 GiB, and a few megabytes can
// overflow the stack, which ends the process. So the codec first checks all bytes. It passes them
// to the library only if they are one whole object, if every element of every array and map is
// there, and if nothing is nested deeper than 10,000 levels.
//
// # What is guaranteed
//
// Decode returns an error for bytes that are not MessagePack, for bytes that were cut short, for an
// object that is followed by further bytes, and for declared lengths that exceed the number of
// bytes. These errors cost little memory, whatever the bytes declare. A panic in the library is
// returned as an error, too. Append makes the same check of the bytes, so it returns no bytes that
// this check would refuse. Decode keeps no reference to its source.
//
// # What is not
//
//   - One byte can become one element of a slice, so the memory of a value is limited only by the
//     number of bytes times the size of the largest element type of V (times some 64 for maps and
//     interfaces). MaxValueSize limits the number of bytes.
//   - In an interface, an int or uint is decoded as the smallest type that holds it, other numbers
//     keep their type, and a struct is decoded as a map[string]any.
//   - A time.Time keeps its instant, to the nanosecond, and is decoded in the local zone; only the
//     zero time is decoded in UTC.
//   - Extension types are refused, including those registered with the library. Timestamps are the
//     one exception.
//   - A value that points to itself overflows the stack in Append.
package msgpackcodec
