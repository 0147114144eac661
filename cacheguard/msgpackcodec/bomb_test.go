package msgpackcodec_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/codectest"
	"github.com/cacheguard/cacheguard/cacheguard/msgpackcodec"
)

// refuses decodes src as a V and requires an error that needs almost no memory.
func refuses[V any](t *testing.T, name string, src []byte) {
	t.Helper()
	codectest.Refuses(t, msgpackcodec.Codec[V]{}, name, src, 256<<10+2*uint64(len(src)))
}

type recursive struct {
	In   []recursive
	Many map[string]recursive
	Wide [64]int64
}

// refusesAll decodes src as values of many types, which must all be refused.
func refusesAll(t *testing.T, name string, src []byte) {
	t.Helper()
	refuses[any](t, name, src)
	refuses[string](t, name, src)
	refuses[[]byte](t, name, src)
	refuses[[]any](t, name, src)
	refuses[[]string](t, name, src)
	refuses[[][]string](t, name, src)
	refuses[[]recursive](t, name, src)
	refuses[[][1024]int64](t, name, src)
	refuses[recursive](t, name, src)
	refuses[*recursive](t, name, src)
	refuses[map[string]any](t, name, src)
	refuses[map[string]string](t, name, src)
	refuses[map[any]any](t, name, src)
	refuses[map[string][1024]int64](t, name, src)
	refuses[[]map[string]any](t, name, src)
	refuses[everything](t, name, src)
	refuses[time.Time](t, name, src)
}

// If a declared length exceeds the bytes that are there, or if the nesting is too deep, Decode
// returns an error that needs almost no memory.
func TestBombs(t *testing.T) {
	const many = 100_000
	all := []byte{0xff, 0xff, 0xff, 0xff}
	for _, head := range []byte{0xc6, 0xc9, 0xdb, 0xdd, 0xdf} {
		src := append([]byte{head}, all...)
		refusesAll(t, "four billion", src)
		refusesAll(t, "four billion, with a little", append(src, make([]byte, 100)...))
		refusesAll(t, "four billion in a list", append([]byte{0x91}, src...))
		refusesAll(t, "four billion in a field", append([]byte{0x81, 0xa2, 'I', 'n'}, src...))
		refusesAll(t, "four billion, again and again", bytes.Repeat(src, many/5))
	}
	for _, head := range []byte{0xc5, 0xc8, 0xda, 0xdc, 0xde} {
		refusesAll(t, "65,535", []byte{head, 0xff, 0xff})
		refusesAll(t, "65,535, again and again", bytes.Repeat([]byte{head, 0xff, 0xff}, many/3))
	}
	refusesAll(t, "lists in lists", bytes.Repeat([]byte{0x91}, 8<<20))
	refusesAll(t, "lists in lists, all there", append(bytes.Repeat([]byte{0x91}, many), 0))
	refusesAll(t, "maps in maps, all there",
		append(bytes.Repeat([]byte{0x81, 0xa2, 'I', 'n'}, many), 0xc0))
	refusesAll(t, "a field nobody knows",
		append(append([]byte{0x81, 0xa1, 'q'}, bytes.Repeat([]byte{0x91}, many)...), 0))
	refusesAll(t, "many lists of eight, none whole", bytes.Repeat([]byte{0x98}, many))
	refusesAll(t, "nothing", nil)
	refusesAll(t, "a byte that means nothing", []byte{0xc1})
	refusesAll(t, "two objects", []byte{0xc0, 0xc0})
	for n := range 8 {
		refusesAll(t, "an extension", append([]byte{0xd7, byte(n)}, make([]byte, 8)...))
	}
	refusesAll(t, "a timestamp of a second in nanoseconds",
		append([]byte{0xd7, 0xff}, bytes.Repeat([]byte{0xff}, 8)...))
	refusesAll(t, "a long timestamp of a second in nanoseconds",
		append([]byte{0xc7, 12, 0xff, 0xdf}, make([]byte, 11)...))
}

// If the library expects a map, it would read the body of a timestamp as a map.
func TestTimestampsThatLookLikeMaps(t *testing.T) {
	bomb := []byte{0xdd, 0xff, 0xff, 0xff, 0xff}
	for name, timestamp := range map[string][]byte{
		"four billion pairs":          {0xd7, 0xff, 0xdf, 0xff, 0xff, 0xff, 0xff, 0, 0, 0},
		"65,535 pairs":                {0xd6, 0xff, 0xde, 0xff, 0xff, 0},
		"one pair, its value a bomb":  slices.Concat([]byte{0xd7, 0xff, 0x81, 0xa1, 'a'}, bomb),
		"nil, and a bomb behind it":   slices.Concat([]byte{0xd7, 0xff, 0xc0}, bomb, []byte{0, 0}),
		"nil, and a short bomb there": {0xd6, 0xff, 0xc0, 0xdc, 0xff, 0xff},
	} {
		refuses[map[string]any](t, name, timestamp)
		refuses[map[string]string](t, name, timestamp)
		refuses[map[any]any](t, name, timestamp)
		refuses[map[string][1024]int64](t, name, timestamp)
		refuses[[]map[string]any](t, name+", in a list",
			slices.Concat([]byte{0x92}, timestamp, []byte{0x80}))
		refuses[map[string]map[string]any](t, name+", in a map",
			slices.Concat([]byte{0x81, 0xa1, 'k'}, timestamp))
		refuses[everything](t, name+", in a field",
			slices.Concat([]byte{0x81, 0xa5}, []byte("Loose"), timestamp))
	}
}
