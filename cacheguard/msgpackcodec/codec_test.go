package msgpackcodec_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/cacheguard/cacheguard/cacheguard/codectest"
	"github.com/cacheguard/cacheguard/cacheguard/msgpackcodec"
)

type Base struct{ Kind string }

// everything is a struct with a field of each kind.
type everything struct {
	Base
	ID      int64  `msgpack:"id"`
	Name    string `msgpack:"n,omitempty"`
	Price   float64
	On      bool
	Blob    []byte
	Words   []string
	Counts  map[string]int
	Ages    map[int]string
	Loose   map[string]any
	Any     any
	Next    *everything
	Many    []everything
	Fixed   [4]uint16
	Times   []time.Time
	Last    *time.Time
	For     time.Duration
	Big     *big.Int
	Addr    netip.Addr
	Skipped string `msgpack:"-"`
}

// bombs are bytes that every type must refuse.
var bombs = map[string][]byte{
	"nothing":                   nil,
	"a byte that means nothing": {0xc1},
	"two objects":               {0xc0, 0xc0},
	"four billion":              {0xdd, 0xff, 0xff, 0xff, 0xff},
	"65,535":                    {0xde, 0xff, 0xff},
	"lists in lists":            bytes.Repeat([]byte{0x91}, 1<<20),
}

func TestConformance(t *testing.T) {
	now := time.Unix(1_800_000_000, 999_999_999)
	t.Run("a struct", func(t *testing.T) {
		codectest.Run(t, codectest.Subject[everything]{
			Codec: msgpackcodec.Codec[everything]{},
			Values: []everything{
				{
					Base: Base{Kind: "k"}, ID: math.MinInt64, Name: "näme", Price: -0.1, On: true,
					Blob:   []byte{0xdd, 0xff, 0xff, 0xff, 0xff},
					Words:  []string{"", "a", strings.Repeat("w", 70000)},
					Counts: map[string]int{"a": 1, "": -1}, Ages: map[int]string{-5: "x"},
					Loose: map[string]any{"n": nil, "i": int64(5), "s": "s", "l": []any{true, 1.5}},
					Any:   "any",
					Next:  &everything{ID: 1}, Many: []everything{{ID: 2}, {}},
					Fixed: [4]uint16{1, 2, 3, math.MaxUint16},
					Times: []time.Time{now, now.Add(time.Hour)}, Last: &now, For: time.Minute,
					Big:  new(big.Int).Lsh(big.NewInt(3), 100),
					Addr: netip.MustParseAddr("2001:db8::1"),
				},
				{
					Words: []string{"a", "b"},
					Loose: map[string]any{"a": 1.5, "b": []any{int8(1), int8(2)}},
					Times: []time.Time{time.Unix(1<<31, 5)}, Many: make([]everything, 3),
				},
			},
			Equal: func(a, b everything) bool {
				if a.Big != nil && b.Big != nil && a.Big.Cmp(b.Big) == 0 {
					b.Big = a.Big // the decoded value has another capacity
				}
				return reflect.DeepEqual(a, b)
			},
			Losses: map[string]codectest.Loss[everything]{
				"a field that is left out": {
					Value: everything{ID: 1, Skipped: "s"}, Becomes: everything{ID: 1},
				},
			},
			Garbage:   bombs,
			Delimited: true,
		})
	})
	t.Run("anything", func(t *testing.T) {
		losses := map[string]codectest.Loss[any]{
			"a struct": {Value: Base{"k"}, Becomes: map[string]any{"Kind": "k"}},
		}
		for in, want := range map[any]any{5: int8(5), -200: int16(-200), uint(200): uint8(200)} {
			losses[fmt.Sprintf("%T", in)+fmt.Sprint(in)] = codectest.Loss[any]{
				Value: in, Becomes: want,
			}
		}
		codectest.Run(t, codectest.Subject[any]{
			Codec: msgpackcodec.Codec[any]{},
			Values: []any{
				nil, int64(5), uint16(5), float32(1), "s",
				map[string]any{"a": 1.5, "b": []any{int8(1), int8(2)}, "t": []any{now}},
			},
			Losses:    losses,
			Refused:   map[string]any{"a function": func() {}, "one that panics": panicking{}},
			Garbage:   bombs,
			Delimited: true,
		})
	})
	t.Run("text", func(t *testing.T) {
		codectest.Run(t, codectest.Subject[string]{
			Codec: msgpackcodec.Codec[string]{}, Values: []string{"text", ""}, Garbage: bombs,
			Stable: true, Delimited: true,
		})
	})
	t.Run("bytes", func(t *testing.T) {
		codectest.Run(t, codectest.Subject[[]byte]{
			Codec: msgpackcodec.Codec[[]byte]{}, Values: [][]byte{[]byte("bytes"), nil},
			Garbage: bombs, Stable: true, Delimited: true,
		})
	})
	t.Run("a pointer", func(t *testing.T) {
		codectest.Run(t, codectest.Subject[*everything]{
			Codec: msgpackcodec.Codec[*everything]{}, Values: []*everything{nil, {ID: 1}},
			Garbage: bombs, Delimited: true,
		})
	})
	t.Run("a map", func(t *testing.T) {
		codectest.Run(t, codectest.Subject[map[string]int]{
			Codec: msgpackcodec.Codec[map[string]int]{}, Values: []map[string]int{nil, {"a": 1}},
			Garbage: bombs, Delimited: true,
		})
	})
}

func roundTrip[V any](t *testing.T, v V) V {
	t.Helper()
	out, err := msgpackcodec.Codec[V]{}.Append(nil, v)
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	got, err := msgpackcodec.Codec[V]{}.Decode(out)
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	return got
}

// Times are decoded as they were encoded, also times whose bytes could be mistaken for the head of
// a map.
func TestTimes(t *testing.T) {
	for _, seconds := range []int64{
		0, 1, 1<<31 - 1, 1 << 31, 0x8f000000, 0xc0000000, 0xde000000, 0xdf000000, 1<<32 - 1,
		1 << 32, 1<<34 - 1, 1 << 34, -1, -1 << 40,
	} {
		for _, nanos := range []int64{
			0, 1, 536_870_912, 0x81 << 22, 0x8f << 22, 0xc0 << 22, 0xde << 22, 0xdf << 22,
			999_999_999,
		} {
			want := time.Unix(seconds, nanos)
			if got := roundTrip(t, want); !got.Equal(want) {
				t.Errorf("%v is %v", want, got)
			}
			at := map[string]time.Time{"a": want, "b": time.Unix(5, 0), "c": want}
			for key, got := range roundTrip(t, at) {
				if !got.Equal(at[key]) {
					t.Errorf("%v in a map is %v", at[key], got)
				}
			}
			list := []any{want, "s", want, want, int64(7)}
			got := roundTrip(t, list)
			for i, v := range list {
				if then, ok := v.(time.Time); ok {
					if now, ok := got[i].(time.Time); !ok || !now.Equal(then) {
						t.Errorf("%v in a list is %v", then, got[i])
					}
				} else if got[i] != v {
					t.Errorf("%v beside a time is %v", v, got[i])
				}
			}
		}
	}
	if got := roundTrip(t, time.Time{}); !got.IsZero() || got.Location() != time.UTC {
		t.Errorf("the zero time is %v", got)
	}
}

// If only one side knows a field, the field is skipped, whatever its type is.
func TestStructsGrow(t *testing.T) {
	full := everything{
		Base: Base{Kind: "k"}, ID: 7, Words: []string{"a"}, Times: []time.Time{time.Unix(1<<31, 0)},
		Loose: map[string]any{"a": 1},
	}
	out, err := msgpackcodec.Codec[everything]{}.Append(nil, full)
	if err != nil {
		t.Fatal(err)
	}
	type older struct {
		ID  int64 `msgpack:"id"`
		Was string
	}
	if got, err := (msgpackcodec.Codec[older]{}).Decode(out); err != nil || got != (older{ID: 7}) {
		t.Errorf("%+v, %v", got, err)
	}
}

type odd struct{ write []byte }

func (o odd) EncodeMsgpack(enc *msgpack.Encoder) error {
	_, err := enc.Writer().Write(o.write)
	return err
}
func (*odd) DecodeMsgpack(*msgpack.Decoder) error { panic("decoder panics") }

type panicking struct{}

func (panicking) MarshalMsgpack() ([]byte, error) { panic(errors.New("encoder panics")) }

// Append refuses values that Decode would refuse, and leaves dst unchanged.
func TestAppendRefuses(t *testing.T) {
	refused := func(out []byte, err error) {
		t.Helper()
		if err == nil || string(out) != "x" {
			t.Errorf("%q, %v; want what was there, and an error", out, err)
		}
	}
	x := []byte("x")
	refused(msgpackcodec.Codec[func()]{}.Append(x, func() {}))
	refused(msgpackcodec.Codec[panicking]{}.Append(x, panicking{}))
	for _, bad := range [][]byte{
		nil, {0xc1}, {1, 2}, {0x91}, {0xd4, 5, 0}, {0xdb, 0xff, 0xff, 0xff, 0xff},
	} {
		refused(msgpackcodec.Codec[odd]{}.Append(x, odd{bad}))
	}
	if out, err := (msgpackcodec.Codec[odd]{}).Append(x, odd{[]byte{0x91, 1}}); err != nil ||
		string(out) != "x\x91\x01" {
		t.Errorf("%q, %v", out, err)
	}
	type list struct{ Next *list }
	var deep *list
	for range 10_001 {
		deep = &list{deep}
	}
	refused(msgpackcodec.Codec[*list]{}.Append(x, deep))
}

// The test uses the deepest allowed nesting: a list in a list, 10,000 times.
func TestAsDeepAsMayBe(t *testing.T) {
	src := append(bytes.Repeat([]byte{0x91}, 10_000), 0x90)
	deep, err := msgpackcodec.Codec[any]{}.Decode(src)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := (msgpackcodec.Codec[any]{}).Append(nil, deep); err != nil ||
		!bytes.Equal(out, src) {
		t.Errorf("%d bytes became %d, %v", len(src), len(out), err)
	}
	if _, err := (msgpackcodec.Codec[any]{}).Decode(append([]byte{0x91}, src...)); err == nil {
		t.Error("one more is fine")
	}
}

// A panic of the library is returned as an error, and the codec can still be used.
func TestDecoderPanics(t *testing.T) {
	if _, err := (msgpackcodec.Codec[odd]{}).Decode([]byte{1}); err == nil ||
		!strings.Contains(err.Error(), "decoder panics") {
		t.Errorf("got %v", err)
	}
	unhashable := []byte{0x81, 0x91, 1, 2} // a map whose key is a list
	if v, err := (msgpackcodec.Codec[map[any]any]{}).Decode(unhashable); err == nil || v != nil {
		t.Errorf("got %v, %v", v, err)
	}
	if got := roundTrip(t, "still works"); got != "still works" {
		t.Errorf("got %q", got)
	}
}
