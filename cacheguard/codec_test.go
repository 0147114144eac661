package cacheguard_test

import (
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
