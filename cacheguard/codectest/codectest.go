package codectest

import (
	"reflect"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Subject is a codec, and the values and bytes to test it with. Only Codec and Values are required.
// If another field isn't set, its default applies, or the cases that need it are skipped. If Shares
// is set, the cases "own values" and "new values" are skipped.
type Subject[V any] struct {
	Codec cacheguard.Codec[V]

	// Values are values that must be equal to the original after they were encoded and decoded.
	Values []V

	// Equal compares two values. Default [reflect.DeepEqual].
	Equal func(a, b V) bool

	// Losses are values that the codec, as documented, decodes as other values.
	Losses map[string]Loss[V]

	// Refused are values that Append must refuse.
	Refused map[string]V

	// Garbage are bytes that Decode must refuse.
	Garbage map[string][]byte

	// Memory returns how many bytes of memory Decode may allocate when it refuses n bytes. Default:
	// 256 KiB + 2 n bytes.
	Memory func(n int) uint64

	// Largest returns the largest number of bytes of an encoded value. Default: no limit.
	Largest func(v V) int

	// Stable is true if a value is encoded to the same bytes each time.
	Stable bool

	// Delimited is true if no proper prefix of an encoded value is an encoded value.
	Delimited bool

	// Shares is true if a decoded value may share memory with the source, as a []byte may.
	Shares bool
}

// Loss is a value, and the value that it becomes when it is encoded and decoded.
type Loss[V any] struct{ Value, Becomes V }

func (s Subject[V]) equal(a, b V) bool {
	if s.Equal != nil {
		return s.Equal(a, b)
	}
	return reflect.DeepEqual(a, b)
}

// TB is the part of [testing.TB] that cases use. Fatalf and Skipf end the goroutine that calls
// them.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Case is one test of a codec.
type Case[V any] struct {
	Name    string
	Promise string // the promise that a codec breaks if it fails the case
	Run     func(t TB, s Subject[V])
}

// Run runs all cases as subtests. It runs them one after another, because they measure memory.
func Run[V any](t *testing.T, s Subject[V]) {
	for _, c := range Cases[V]() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, s) })
	}
}

// Cases returns all cases.
func Cases[V any]() []Case[V] {
	all := []Case[V]{
		{"round trip", "a value that was encoded and decoded equals the original", roundTrip[V]},
		{"append", "Append appends: the bytes in front of the value stay as they are", appends[V]},
		{"source", "Decode doesn't change its source, because others read it", leavesSource[V]},
		{
			"own values",
			"Decode doesn't keep its source: a value stays as it is when the source changes",
			ownValues[V],
		},
		{
			"new values",
			"each Decode returns a new value: a change of one value changes no other value",
			newValues[V],
		},
		{"goroutines", "a codec is used by many goroutines at once", goroutines[V]},
		{
			"name",
			"values under another name are misses, so a codec must always have the same name",
			oneName[V],
		},
		{
			"garbage",
			"Decode refuses bytes that are no value with an error, without a panic, in little memory",
			garbage[V],
		},
		{
			"cut",
			"Decode doesn't panic if bytes are missing, and returns an error if Delimited is set",
			cut[V],
		},
		{
			"flipped",
			"with a flipped bit Decode neither panics nor returns a value that can't be stored again",
			flipped[V],
		},
		{"refused", "if Append refuses a value, it returns dst as it was", refused[V]},
		{"losses", "a codec loses only what its documentation says", losses[V]},
		{"size", "an encoded value has at most as many bytes as the codec says", size[V]},
		{
			"stable", "if the codec says so, a value is encoded to the same bytes each time",
			stable[V],
		},
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

// naming adds the promise of the case to the text of failures.
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
