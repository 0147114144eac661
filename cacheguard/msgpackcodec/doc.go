// Package msgpackcodec is a cacheguard.Codec that stores values as MessagePack, by
// github.com/vmihailenco/msgpack/v5. It is a module of its own:
//
//	go get github.com/cacheguard/cacheguard/cacheguard/msgpackcodec
//
//	products, err := cacheguard.New(store, cacheguard.Options[Product]{
//		Name: "product", Codec: msgpackcodec.Codec[Product]{},
//	})
//
// Field names and options come from `msgpack:"..."` tags; without one a field goes by its name in
// Go, never by its json tag. What has methods of its own for MessagePack, binary or text uses them,
// in this order. A field that only one of writer and reader knows is skipped, as with JSON, so a
// struct can grow while old and new programs share a cache.
//
// That library, and not one of those released more often, because it brings back what types such as
// big.Int or netip.Addr keep in unexported fields. It believes lengths that it reads, and it has no
// bound on nesting: five bytes can make it allocate 64 GiB, and a few megabytes can overflow the
// stack, which ends the process. So nothing reaches it here before a walk over the bytes has found
// that they are one whole object, that every element of every array and map is there, and that
// nothing is nested deeper than 10,000 levels.
//
// # What is guaranteed
//
// Bytes that are not MessagePack are an error, and so are bytes cut short, bytes with something
// behind them, and declared lengths that nothing backs; that error costs no memory. A panic in the
// library is an error too. Append refuses what Decode would not take, so what was stored can be
// read again. Decode keeps nothing of its source.
//
// # What is not
//
//   - One byte can become one element of a slice, so memory is bounded by the size of the bytes
//     times that of the largest element type of V (times some 64 for maps and interfaces).
//     MaxValueSize bounds the bytes.
//   - In an interface, an int or uint comes back in the smallest type that holds it, other numbers
//     in their own, and a struct comes back as a map[string]any.
//   - A time.Time keeps its instant, to the nanosecond, and comes back in the local zone; only the
//     zero time is in UTC.
//   - Extension types, those registered with the library included, are refused; timestamps are the
//     one exception.
//   - A value that points to itself overflows the stack in Append.
package msgpackcodec
