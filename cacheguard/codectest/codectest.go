package codectest

import (
	"reflect"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Subject is a codec and what to try it with. Only Codec and Values are required: a case that lacks
// what it needs is skipped.
type Subject[V any] struct {
	Codec cacheguard.Codec[V]

	// Values are stored and come back as they were.
	Values []V

	// Equal compares values. Nil: reflect.DeepEqual.
	Equal func(a, b V) bool

	// Losses are values of which it is documented that they come back as others.
	Losses map[string]Loss[V]

	// Refused are values that Append has to refuse.
	Refused map[string]V

	// Garbage is bytes that are no value.
	Garbage map[string][]byte

	// Memory is how many bytes of memory Decode may take to refuse n bytes. Nil: 256 KiB and 2 n.
	Memory func(n int) uint64

	// Largest is how many bytes a value may become. Nil: there is no bound.
	Largest func(v V) int

	// Stable says that the same value becomes the same bytes each time.
	Stable bool

	// Delimited says that no beginning of the bytes of a value is a value.
	Delimited bool

	// Shares says that what Decode returns may lie in its source, as []byte may.
	Shares bool
}

// Loss is a value and what it comes back as.
type Loss[V any] struct{ Value, Becomes V }

func (s Subject[V]) equal(a, b V) bool {
	if s.Equal != nil {
		return s.Equal(a, b)
	}
	return reflect.DeepEqual(a, b)
}

// TB is the part of testing.TB that cases use. Fatalf and Skipf end the goroutine that calls them.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Case is one test of a codec.
type Case[V any] struct {
	Name    string
	Promise string // what a codec that fails the case would break
	Run     func(t TB, s Subject[V])
}

// Run runs all cases as subtests, one after another: they measure memory.
func Run[V any](t *testing.T, s Subject[V]) {
	for _, c := range Cases[V]() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, s) })
	}
}

// Cases returns all cases.
func Cases[V any]() []Case[V] {
	all := []Case[V]{
		{"round trip", "a value that is cached is the one that was loaded", roundTrip[V]},
		{"append", "Append appends: what is in front of a value stays", appends[V]},
		{"source", "Decode doesn't change its source, which others read", leavesSource[V]},
		{
			"own values", "Decode doesn't keep its source: a value stays as it is when the source changes",
			ownValues[V],
		},
		{
			"new values", "each Decode returns a value of its own: who changes it changes no other",
			newValues[V],
		},
		{"goroutines", "a codec is used by many goroutines at once", goroutines[V]},
		{
			"name", "values under another name are misses, so that a codec has one name for all time",
			oneName[V],
		},
		{
			"garbage", "bytes that are no value are an error, no panic, and take little memory",
			garbage[V],
		},
		{"cut", "what was cut off is an error, not a smaller value", cut[V]},
		{
			"flipped", "no changed bit makes Decode panic, or return what can't be stored again",
			flipped[V],
		},
		{"refused", "what Append refuses leaves dst as it was", refused[V]},
		{"losses", "what a codec loses is what its documentation says", losses[V]},
		{"size", "a value becomes no more bytes than the codec says", size[V]},
		{"stable", "the same value is the same bytes each time, where the codec says so", stable[V]},
	}
	for i, c := range all {
		all[i].Run = func(t TB, s Subject[V]) {
			t.Helper()
			if len(s.Values) == 0 {
				t.Fatalf("a codec can't be tried without values")
			}
			c.Run(naming{t, c.Promise}, s)
		}
	}
	return all
}

// naming has failures say what the case protects.
type naming struct {
	TB
	promise string
}

func (n naming) Errorf(format string, args ...any) {
	n.Helper()
	n.TB.Errorf(format+"\n\tprotects: "+n.promise, args...)
}

func (n naming) Fatalf(format string, args ...any) {
	n.Helper()
	n.TB.Fatalf(format+"\n\tprotects: "+n.promise, args...)
}
