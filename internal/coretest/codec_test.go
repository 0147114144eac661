package coretest_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/codectest"
)

// jsonValue has what JSON keeps, and what it leaves out.
type jsonValue struct {
	Name   string
	Number float64
	Words  []string
	Many   map[string]int
	Next   *jsonValue
	At     time.Time
	Any    any
	Secret string `json:"-"`
	hidden int
}

// appender is a codec that should append to dst.
type appender func(dst, v []byte) []byte

func (f appender) Append(dst, v []byte) ([]byte, error) { return f(dst, v), nil }
func (appender) Decode(src []byte) ([]byte, error)      { return src, nil }

// If Append doesn't append to dst, the value is returned as it was loaded, and not stored.
func TestCodecThatDoesntAppend(t *testing.T) {
	codecs := map[string]appender{
		"ignores dst": func(_, v []byte) []byte { return v },
		"reuses dst":  func(dst, v []byte) []byte { return append(dst[:0], v...) },
		"cuts dst":    func(dst, v []byte) []byte { return append(dst[1:], v...) },
	}
	for name, codec := range codecs {
		inBubble(t, name, func(t *testing.T) {
			var why error
			c := openOn(t, newTampered(), cacheguard.Options[[]byte]{
				Codec: codec, Observer: observing(func(e cacheguard.Event) {
					if e.Kind == cacheguard.EventNotStored {
						why = e.Err
					}
				}),
			})
			for _, size := range []int{0, 1, 79, 80, 81, 300, 10_000} {
				for _, b := range []byte{0, 'v'} {
					key, value := fmt.Sprint(size, b), bytes.Repeat([]byte{b}, size)
					want := bytes.Clone(value)
					why = nil
					getting(t.Context(), t, c, key, returning(value)).gives(want, nil)
					if why == nil || !strings.Contains(why.Error(), "Append") {
						t.Errorf("%d bytes: the observer was told %v; want a word of Append", size,
							why)
					}
					if r, err := c.Peek(t.Context(), key); r.Status != cacheguard.StatusMiss {
						t.Errorf("%d bytes are stored: %+v, %v", size, r, err)
					}
					if err := c.Set(t.Context(), key, value); err == nil ||
						!bytes.Equal(value, want) {
						t.Errorf("%d bytes: Set returned %v and left %.100q", size, err, value)
					}
				}
			}
		})
	}
}

// TestJSON is the conformance of the default codec.
func TestJSON(t *testing.T) {
	garbage := map[string][]byte{
		"nothing":                    nil,
		"no JSON":                    []byte("?"),
		"two values":                 []byte("{} {}"),
		"lists in lists":             []byte(strings.Repeat("[", 1<<20)),
		"another type":               []byte(`{"Name":1}`),
		"a number that is too large": []byte(`{"Number":1e999}`),
	}
	t.Run("a struct", func(t *testing.T) {
		at := time.Unix(1_800_000_000, 5).UTC()
		whole := jsonValue{
			Name: "n\u00e4me \x00", Number: -0.1, Words: []string{"", "w"},
			Next: &jsonValue{Name: "next"},
			Many: map[string]int{"a": 1, "b": 2, "": 3}, At: at,
			Any: map[string]any{"l": []any{true, nil, 1.5}},
		}
		lossy := whole
		lossy.Secret, lossy.hidden = "s", 1
		codectest.Run(t, codectest.Subject[jsonValue]{
			Codec:  cacheguard.JSON[jsonValue]{},
			Values: []jsonValue{whole, {}},
			Losses: map[string]codectest.Loss[jsonValue]{
				"fields that JSON leaves out": {Value: lossy, Becomes: whole},
				"a whole number in an interface": {
					Value: jsonValue{Any: 1}, Becomes: jsonValue{Any: 1.0},
				},
			},
			Refused: map[string]jsonValue{
				"no number": {Number: math.NaN()}, "a channel": {Any: make(chan int)},
			},
			Garbage:   garbage,
			Stable:    true,
			Delimited: true,
		})
	})
	t.Run("anything", func(t *testing.T) {
		delete(garbage, "another type")
		delete(garbage, "a number that is too large")
		codectest.Run(t, codectest.Subject[any]{
			Codec:  cacheguard.JSON[any]{},
			Values: []any{nil, "s", 1.5, []any{true, "a"}, map[string]any{"b": nil, "a": "c"}},
			Losses: map[string]codectest.Loss[any]{
				"bytes":                  {Value: []byte("abc"), Becomes: "YWJj"},
				"bytes that are no text": {Value: "\xff", Becomes: "\ufffd"},
			},
			Refused: map[string]any{"a function": func() {}},
			Garbage: garbage,
			Stable:  true,
		})
	})
}
