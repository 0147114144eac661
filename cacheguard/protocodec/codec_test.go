package protocodec_test

import (
	"bytes"
	"context"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/codectest"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/protocodec"
	"github.com/cacheguard/cacheguard/internal/logtest"
)

// This compiles only if Codec is a cacheguard.Codec.
var _ cacheguard.Codec[*structpb.Struct] = protocodec.Codec[*structpb.Struct]{}

func product(t testing.TB) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(map[string]any{
		"id": "42", "tags": []any{"a", "b", nil, true}, "price": map[string]any{"eur": 9.5},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	codectest.Run(t, codectest.Subject[*structpb.Struct]{
		Codec:   protocodec.Codec[*structpb.Struct]{},
		Values:  []*structpb.Struct{product(t), {}},
		Equal:   func(a, b *structpb.Struct) bool { return proto.Equal(a, b) },
		Refused: map[string]*structpb.Struct{"nil": nil},
		Garbage: map[string][]byte{
			"no tag":                          {0xff},
			"a length that nothing backs":     {0x0a, 0xff, 0xff, 0xff, 0xff, 0x07},
			"an end of a group, and no start": {0x0c},
			"groups in groups":                bytes.Repeat([]byte{0x0b}, 1<<20),
			"a varint without end":            bytes.Repeat([]byte{0xff}, 1<<20),
		},
		Memory: memory,
	})
}

// The encoder keeps sizes in a message. They aren't a part of the value that the codec loses.
func TestNothingIsSaidToBeLost(t *testing.T) {
	var log logtest.Lines
	store := memstore.New(memstore.Options{})
	defer store.Close()
	cache, err := cacheguard.New(store, cacheguard.Options[*structpb.Struct]{
		Name: "test", Codec: protocodec.Codec[*structpb.Struct]{}, Logger: log.Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	if _, err := cache.Get(t.Context(), "k", func(context.Context) (*structpb.Struct, error) {
		return product(t), nil
	}); err != nil {
		t.Fatal(err)
	}
	if log.String() != "" {
		t.Errorf("the log has\n%s", &log)
	}
}

// Unknown fields are kept, so that an older program may store a message that a newer program made.
func TestUnknownFields(t *testing.T) {
	newer, err := protocodec.Codec[*wrapperspb.StringValue]{}.Append(nil, wrapperspb.String("kept"))
	if err != nil {
		t.Fatal(err)
	}
	old, err := protocodec.Codec[*emptypb.Empty]{}.Decode(newer)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := (protocodec.Codec[*emptypb.Empty]{}).Append(nil, old); err != nil ||
		!bytes.Equal(out, newer) {
		t.Errorf("%x became %x, %v", newer, out, err)
	}
}

// A nil message, and a V that isn't the type of a message, cause errors and no panics.
func TestNoMessage(t *testing.T) {
	refused := func(out []byte, err error) {
		t.Helper()
		if err == nil || string(out) != "x" {
			t.Errorf("Append: %q, %v; want what was there, and an error", out, err)
		}
	}
	refused(protocodec.Codec[proto.Message]{}.Append([]byte("x"), nil))
	refused(protocodec.Codec[proto.Message]{}.Append([]byte("x"), (*structpb.Struct)(nil)))
	// The text is not UTF-8.
	refused(protocodec.Codec[*wrapperspb.StringValue]{}.Append([]byte("x"),
		wrapperspb.String("\xff")))
	if m, err := (protocodec.Codec[proto.Message]{}).Decode(nil); err == nil || m != nil {
		t.Errorf("Decode for proto.Message: %v, %v; want an error", m, err)
	}
	if m, err := (protocodec.Codec[*dynamicpb.Message]{}).Decode(nil); err == nil || m != nil {
		t.Errorf("Decode for *dynamicpb.Message: %v, %v; want an error", m, err)
	}
	_ = protocodec.Codec[proto.Message]{}.Name()
	_ = protocodec.Codec[*dynamicpb.Message]{}.Name()
}

// Codecs for different types of messages have different names.
func TestNames(t *testing.T) {
	a, b := protocodec.Codec[*structpb.Struct]{}.Name(), protocodec.Codec[*structpb.Value]{}.Name()
	if a == b || a != "protobuf google.protobuf.Struct" {
		t.Errorf("%q and %q", a, b)
	}
}

// memory returns the number of bytes that Decode may allocate to refuse n bytes.
func memory(n int) uint64 { return 64<<10 + 256*uint64(n) }

func refuses[V proto.Message](t *testing.T, name string, src []byte) {
	t.Helper()
	codectest.Refuses(t, protocodec.Codec[V]{}, name, src, memory(len(src)))
}

// If a declared length exceeds the bytes that are there, or if the nesting is too deep, Decode
// returns an error. It allocates no more than for that number of bytes.
func TestBombs(t *testing.T) {
	// 2 GiB.
	long := append(protowire.AppendTag(nil, 1, protowire.BytesType), 0xff, 0xff, 0xff, 0xff, 0x07)
	for _, kind := range []protoreflect.FieldNumber{1, 2, 5, 6} {
		long[0] = byte(kind<<3 | 2)
		refuses[*structpb.Struct](t, "a length that nothing backs",
			append([]byte{0x0a, 10}, long...))
		refuses[*structpb.Value](t, "a length that nothing backs", long)
		refuses[*structpb.ListValue](t, "a length that nothing backs",
			append(bytes.Repeat([]byte{0x0a, 0}, 50), long...))
		refuses[*anypb.Any](t, "a length that nothing backs", long)
		refuses[*emptypb.Empty](t, "a length that nothing backs, in an unknown field", long)
	}
	refuses[*emptypb.Empty](t, "groups in groups", bytes.Repeat([]byte{0x0b}, 1<<20))
	refuses[*emptypb.Empty](t, "a varint without end", bytes.Repeat([]byte{0xff}, 1<<20))
	deep := []byte(nil) // values in lists in values
	for range 3000 {
		deep = append(protowire.AppendVarint([]byte{0x0a}, uint64(len(deep))), deep...)
		deep = append(protowire.AppendVarint([]byte{0x32}, uint64(len(deep))), deep...)
	}
	if _, err := (protocodec.Codec[*structpb.Value]{}).Decode(deep); err != nil {
		t.Fatalf("6,000 levels: %v", err)
	}
	for range 3000 {
		deep = append(protowire.AppendVarint([]byte{0x0a}, uint64(len(deep))), deep...)
		deep = append(protowire.AppendVarint([]byte{0x32}, uint64(len(deep))), deep...)
	}
	refuses[*structpb.Value](t, "12,000 levels", deep)
}

// FuzzDecode shows that Decode returns an error for any bytes, or a message that can be stored
// again, and needs bounded memory.
func FuzzDecode(f *testing.F) {
	out, err := protocodec.Codec[*structpb.Struct]{}.Append(nil, product(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(out)
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x07})
	f.Add(bytes.Repeat([]byte{0x0b}, 20_000))
	f.Fuzz(func(t *testing.T, src []byte) {
		var m *structpb.Struct
		var err error
		// The rest is for the fuzzer, which runs at the same time.
		if costs := codectest.Allocated(func() {
			m, err = protocodec.Codec[*structpb.Struct]{}.Decode(src)
		}); costs > uint64(8<<20+512*len(src)) {
			t.Fatalf("%d bytes took %d", len(src), costs)
		}
		if err != nil {
			return
		}
		out, err := protocodec.Codec[*structpb.Struct]{}.Append(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := protocodec.Codec[*structpb.Struct]{}.Decode(out)
		if err != nil || proto.Size(again) != proto.Size(m) {
			t.Fatalf("%v came back as %v, %v", m, again, err)
		}
	})
}
