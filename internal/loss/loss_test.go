package loss_test

import (
	"encoding/json"
	"math"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/loss"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

type part struct {
	Name   string
	Hidden string `json:"-"`
	inner  int
}

type circle struct {
	Next *circle
	N    int
}

func TestField(t *testing.T) {
	now := time.Now() // with a monotonic clock, which no codec keeps
	for name, c := range map[string]struct {
		value any
		lost  string
	}{
		"nothing":           {part{Name: "n"}, ""},
		"ignored field":     {part{Name: "n", Hidden: "h"}, "Hidden"},
		"unexported field":  {part{Name: "n", inner: 1}, "inner"},
		"in a slice":        {[]part{{Name: "n"}, {Name: "m", inner: 1}}, "[1].inner"},
		"in a map":          {map[string]part{"k": {Hidden: "h"}}, "[...].Hidden"},
		"by a pointer":      {&part{inner: 1}, "inner"},
		"nested":            {struct{ P []*part }{[]*part{{inner: 1}}}, "P[0].inner"},
		"times":             {struct{ At, Since time.Time }{now, now.UTC()}, ""},
		"time by a pointer": {struct{ At *time.Time }{&now}, ""},
		"nil slices and maps": {struct {
			S []int
			M map[string]int
			P *part
		}{}, ""},
		"empty ones": {struct {
			S []int          `json:",omitempty"`
			M map[string]int `json:",omitempty"`
		}{[]int{}, map[string]int{}}, ""},
		"numbers in any": {map[string]any{"n": 1}, "[...]"},
		"strings in any": {map[string]any{"n": "1", "l": []any{"a", nil}}, ""},
		"keys":           {map[int]string{1: "a"}, ""},
		"ints":           {int64(math.MaxInt64), ""},
		"floats":         {[]float64{1.5, math.MaxFloat64}, ""},
		"bytes":          {[]byte("bytes"), ""},
		"array":          {[2]string{"a", "b"}, ""},
		"raw JSON":       {json.RawMessage(`{"a":1}`), ""},
		"embedded":       {struct{ part }{part{Name: "n", inner: 2}}, "part.inner"},
		"deep":           {circle{&circle{&circle{nil, 3}, 2}, 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := json.Marshal(c.value)
			if err != nil {
				t.Fatal(err)
			}
			if got := loss.Field(c.value, decoded(t, c.value, b)); got != c.lost {
				t.Errorf("of %s it lost %q; want %q", b, got, c.lost)
			}
		})
	}
}

func TestFieldsThatNoJSONHas(t *testing.T) {
	round := &circle{N: 1}
	round.Next = round
	other := &circle{N: 1}
	other.Next = other
	for name, c := range map[string]struct {
		before, after any
		lost          string
	}{
		"circles":         {round, other, ""},
		"NaN":             {math.NaN(), math.NaN(), ""},
		"NaN for 1":       {1.0, math.NaN(), "the value"},
		"another type":    {1, "1", "the value"},
		"nil":             {nil, nil, ""},
		"nil for a value": {1, nil, "the value"},
		"function":        {struct{ F func() }{func() {}}, struct{ F func() }{}, "F"},
		"functions":       {struct{ F func() }{func() {}}, struct{ F func() }{func() {}}, ""},
		"shorter":         {struct{ S []int }{[]int{1, 2}}, struct{ S []int }{[]int{1}}, "S"},
		"other keys":      {map[string]int{"a": 1}, map[string]int{"b": 1}, "[...]"},
		"more keys":       {map[string]int{"a": 1}, map[string]int{"a": 1, "b": 1}, "the value"},
		"bytes": {
			struct{ b []byte }{[]byte("ab")}, struct{ b []byte }{[]byte("ax")}, "b",
		},
		"same bytes":  {struct{ b []byte }{[]byte("ab")}, struct{ b []byte }{[]byte("ab")}, ""},
		"nil pointer": {struct{ P *int }{new(int)}, struct{ P *int }{}, "P"},
	} {
		if got := loss.Field(c.before, c.after); got != c.lost {
			t.Errorf("%s: it lost %q; want %q", name, got, c.lost)
		}
	}
}

// locked is a value that other goroutines may be changing. Its codec takes the lock.
type locked struct {
	Name string
	base
	seen map[string]int
}

type base struct{ mu sync.Mutex }

// memoized fills its field when it is first read.
type memoized struct {
	once *sync.Once
	memo map[string]int
}

// Structs with locks are not looked into.
func TestLockedStructs(t *testing.T) {
	a, b := &locked{Name: "a", seen: map[string]int{"x": 1}}, &locked{Name: "a"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 1000 {
			a.mu.Lock()
			a.seen["x"] = i
			a.mu.Unlock()
		}
	}()
	if got := loss.Field(struct{ L *locked }{a}, struct{ L *locked }{b}); got != "" {
		t.Errorf("lost %q", got)
	}
	<-done
	full := memoized{new(sync.Once), map[string]int{"x": 1}}
	if got := loss.Field(full, memoized{once: full.once}); got != "" {
		t.Errorf("lost %q", got)
	}
}

// child is a part of a tree with pointers to the parents.
type child struct {
	Parent   *child
	Children []*child
}

// The number of paths through a value with pointers to parents grows with each level, so Field ends
// after some of them.
func TestParents(t *testing.T) {
	tree := func() *child {
		root := &child{}
		for range 1000 {
			root.Children = append(root.Children, &child{Parent: root})
		}
		return root
	}
	a, b, done := tree(), tree(), make(chan string)
	go func() { done <- loss.Field(a, b) }()
	if got := waittest.Next(t, "Field", done); got != "" {
		t.Errorf("lost %q", got)
	}
}

// A value that has lost nothing costs nothing for the name of each of its parts.
func TestAllocations(t *testing.T) {
	value := struct{ Bytes, Numbers any }{make([]byte, 1<<20), make([]int, 1<<10)}
	if n := testing.AllocsPerRun(10, func() { loss.Field(value, value) }); n > 20 {
		t.Errorf("%v allocations", n)
	}
}

// decoded is what bytes are as a value of a type.
func decoded(t *testing.T, like any, b []byte) any {
	t.Helper()
	to := reflect.New(reflect.TypeOf(like))
	if err := json.Unmarshal(b, to.Interface()); err != nil {
		t.Fatal(err)
	}
	return to.Elem().Interface()
}
