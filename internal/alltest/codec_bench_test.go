package alltest

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/types/known/sourcecontextpb"
	"google.golang.org/protobuf/types/known/typepb"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/compresscodec"
	"github.com/cacheguard/cacheguard/cacheguard/msgpackcodec"
	"github.com/cacheguard/cacheguard/cacheguard/protocodec"
)

// The codecs beside each other, in one run, on one value of some KB: a generated message that all
// of them can store.
//
//	go test -run '^$' -bench BenchmarkCodec -count 6 ./internal/alltest
func BenchmarkCodec(b *testing.B) {
	type V = *typepb.Type
	value := &typepb.Type{
		Name:          "shop.Product",
		SourceContext: &sourcecontextpb.SourceContext{FileName: "shop/product.proto"},
	}
	for i := range 60 {
		value.Fields = append(value.Fields, &typepb.Field{
			Kind: typepb.Field_Kind(1 + i%18), Cardinality: typepb.Field_CARDINALITY_OPTIONAL,
			Number:   int32(i * 37),
			Name:     fmt.Sprintf("field_%d_of_%x", i, i*i*7919),
			JsonName: fmt.Sprintf("field%dOf%x", i, i*i*7919),
			TypeUrl:  fmt.Sprintf("type.example.com/shop.Part%d", i%7), Packed: i%3 == 0,
		})
	}
	over := func(inner cacheguard.Codec[V], a compresscodec.Algorithm) cacheguard.Codec[V] {
		c, err := compresscodec.New(compresscodec.Options[V]{Inner: inner, Algorithm: a})
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
	for _, c := range []struct {
		name  string
		codec cacheguard.Codec[V]
	}{
		{"JSON", cacheguard.JSON[V]{}},
		{"MessagePack", msgpackcodec.Codec[V]{}},
		{"Protobuf", protocodec.Codec[V]{}},
		{"S2 over JSON", over(cacheguard.JSON[V]{}, compresscodec.S2)},
		{"Zstd over JSON", over(cacheguard.JSON[V]{}, compresscodec.Zstd)},
		{"S2 over Protobuf", over(protocodec.Codec[V]{}, compresscodec.S2)},
		{"Zstd over Protobuf", over(protocodec.Codec[V]{}, compresscodec.Zstd)},
	} {
		stored, err := c.codec.Append(nil, value)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("Append/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				// As the loader calls it.
				if _, err := c.codec.Append(make([]byte, 62, 248), value); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(stored)), "stored-B")
		})
		b.Run("Decode/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.codec.Decode(stored); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
