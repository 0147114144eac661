package codectest

import (
	"bytes"
	"fmt"
	"reflect"
	"runtime"
	"sync"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// encode returns a value in encoded form.
func encode[V any](t TB, s Subject[V], v V) []byte {
	t.Helper()
	src, err := s.Codec.Append(nil, v)
	if err != nil {
		t.Fatalf("Append(%.200v): %v", v, err)
	}
	return src
}

func decode[V any](t TB, s Subject[V], src []byte) V {
	t.Helper()
	v, err := s.Codec.Decode(src)
	if err != nil {
		t.Fatalf("Decode of %d bytes: %v", len(src), err)
	}
	return v
}

func roundTrip[V any](t TB, s Subject[V]) {
	for _, v := range s.Values {
		if got := decode(t, s, encode(t, s, v)); !s.equal(got, v) {
			t.Errorf("%.200v came back as %.200v", v, got)
		}
	}
}

func appends[V any](t TB, s Subject[V]) {
	const prefix = "prefix"
	for _, v := range s.Values {
		out, err := s.Codec.Append([]byte(prefix), v)
		if err != nil || !bytes.HasPrefix(out, []byte(prefix)) {
			t.Fatalf("Append(%.200v): %v, or what was in front is gone", v, err)
		}
		if got := decode(t, s, out[len(prefix):]); !s.equal(got, v) {
			t.Errorf("behind something else %.200v came back as %.200v", v, got)
		}
	}
}

func leavesSource[V any](t TB, s Subject[V]) {
	for _, v := range s.Values {
		src := encode(t, s, v)
		before := bytes.Clone(src)
		decode(t, s, src)
		if !bytes.Equal(before, src) {
			t.Errorf("the bytes of %.200v are others after Decode", v)
		}
	}
}

func ownValues[V any](t TB, s Subject[V]) {
	if s.Shares {
		t.Skipf("what Decode returns may lie in its source")
	}
	for _, v := range s.Values {
		src := encode(t, s, v)
		got := decode(t, s, src)
		for i := range src {
			src[i] = ^src[i]
		}
		if !s.equal(got, v) {
			t.Errorf("%.200v became %.200v when the bytes it came from changed", v, got)
		}
	}
}

func newValues[V any](t TB, s Subject[V]) {
	if s.Shares {
		t.Skipf("what Decode returns may lie in its source")
	}
	for _, v := range s.Values {
		src := encode(t, s, v)
		if a, b := reflect.ValueOf(decode(t, s, src)),
			reflect.ValueOf(decode(t, s, src)); same(a, b) {
			t.Errorf("two calls of Decode returned the same memory for %.200v", v)
		}
	}
}

// same reports whether a change of one value would change the other value.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer:
		return a.Pointer() == b.Pointer() && !a.IsNil() && a.Type().Elem().Size() > 0
	case reflect.Map:
		return a.Pointer() == b.Pointer() && !a.IsNil()
	case reflect.Slice:
		return a.Len() > 0 && a.Pointer() == b.Pointer() && a.Type().Elem().Size() > 0
	}
	return false
}

func goroutines[V any](t TB, s Subject[V]) {
	const many, rounds, large = 16, 20, 64 << 10
	var values []V // all values that are small enough
	for _, v := range s.Values {
		if len(encode(t, s, v)) <= large {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		t.Skipf("all Values are too large for a test with many goroutines")
	}
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			for n := range max(rounds, len(values)) {
				v := values[(i+n)%len(values)]
				src, err := s.Codec.Append(nil, v)
				if err != nil {
					t.Errorf("Append(%.200v): %v", v, err)
					return
				}
				if got, err := s.Codec.Decode(src); err != nil || !s.equal(got, v) {
					t.Errorf("among others %.200v came back as %.200v, %v", v, got, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func oneName[V any](t TB, s Subject[V]) {
	named, ok := s.Codec.(interface{ Name() string })
	if !ok {
		t.Skipf("the codec has no name")
	}
	name := named.Name()
	encode(t, s, s.Values[0])
	if again := named.Name(); name == "" || again != name {
		t.Errorf("it is called %q, and then %q", name, again)
	}
}

func garbage[V any](t TB, s Subject[V]) {
	if len(s.Garbage) == 0 {
		t.Skipf("there is no garbage")
	}
	memory := s.Memory
	if memory == nil {
		memory = func(n int) uint64 { return 256<<10 + 2*uint64(n) }
	}
	for name, src := range s.Garbage {
		Refuses(t, s.Codec, name, src, memory(len(src)))
	}
}

// Refuses tests that a codec refuses bytes that are not a value. Decode must return an error, and
// may allocate at most the number of bytes given by most. No other goroutine may allocate memory in
// the meantime, because the test counts all allocations of the process.
func Refuses[V any](t TB, codec cacheguard.Codec[V], name string, src []byte, most uint64) {
	t.Helper()
	_, _ = decodeAny(codec, src[:0]) // the first Decode fills tables of types
	var v V
	var err error
	costs := Allocated(func() { v, err = decodeAny(codec, src) })
	if panicked, ok := err.(panicError); ok {
		t.Errorf("%s: Decode of %d bytes panicked: %v", name, len(src), panicked.value)
	}
	if err == nil {
		t.Errorf("%s: %d bytes are a %T", name, len(src), v)
	}
	if costs > most {
		t.Errorf("%s: %d bytes took %d bytes of memory for a %T, want at most %d (%v)",
			name, len(src), costs, v, most, err)
	}
}

// Allocated returns how many bytes of memory a function allocates. No other goroutine may allocate
// memory in the meantime, because Allocated counts all allocations of the process.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

type panicError struct{ value any }

func (p panicError) Error() string { return fmt.Sprint(p.value) }

// decodeAny decodes any bytes. It returns a panic as an error.
func decodeAny[V any](codec cacheguard.Codec[V], src []byte) (v V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError{p}
		}
	}()
	return codec.Decode(src)
}

// tries returns the encoded values that are short enough to vary each of their bytes.
func tries[V any](t TB, s Subject[V]) (all [][]byte) {
	const most = 8 << 10
	for _, v := range s.Values {
		if src := encode(t, s, v); len(src) > 0 && len(src) <= most {
			all = append(all, src)
		}
	}
	return all
}

func cut[V any](t TB, s Subject[V]) {
	for _, src := range tries(t, s) {
		for n := range src {
			v, err := decodeAny(s.Codec, src[:n:n])
			if _, panicked := err.(panicError); panicked {
				t.Errorf("the first %d of %d bytes make Decode panic: %v", n, len(src), err)
			} else if err == nil && s.Delimited {
				t.Errorf("the first %d of %d bytes are %.200v", n, len(src), v)
			}
		}
	}
}

func flipped[V any](t TB, s Subject[V]) {
	for _, src := range tries(t, s) {
		for bit := range 8 * len(src) {
			changed := bytes.Clone(src)
			changed[bit/8] ^= 1 << (bit % 8)
			v, err := decodeAny(s.Codec, changed)
			if _, panicked := err.(panicError); panicked {
				t.Errorf("with bit %d flipped Decode panics: %v", bit, err)
			} else if err == nil {
				if _, err := s.Codec.Append(nil, v); err != nil {
					t.Errorf("with bit %d flipped there is a value that can't be stored: %v", bit,
						err)
				}
			}
		}
	}
}

func refused[V any](t TB, s Subject[V]) {
	if len(s.Refused) == 0 {
		t.Skipf("there is nothing that Append refuses")
	}
	for name, v := range s.Refused {
		if out, err := s.Codec.Append([]byte("x"), v); err == nil || string(out) != "x" {
			t.Errorf("%s: %d bytes, %v; want what was there, and an error", name, len(out), err)
		}
	}
}

func losses[V any](t TB, s Subject[V]) {
	if len(s.Losses) == 0 {
		t.Skipf("nothing is lost")
	}
	for name, l := range s.Losses {
		if got := decode(t, s, encode(t, s, l.Value)); !s.equal(got, l.Becomes) {
			t.Errorf("%s: %.200v came back as %.200v, want %.200v", name, l.Value, got, l.Becomes)
		}
	}
}

func size[V any](t TB, s Subject[V]) {
	if s.Largest == nil {
		t.Skipf("there is no bound")
	}
	for _, v := range s.Values {
		if n, most := len(encode(t, s, v)), s.Largest(v); n > most {
			t.Errorf("%.200v became %d bytes, want at most %d", v, n, most)
		}
	}
}

func stable[V any](t TB, s Subject[V]) {
	if !s.Stable {
		t.Skipf("the bytes of a value may differ")
	}
	for _, v := range s.Values {
		first := encode(t, s, v)
		rounds := 10
		if len(first) > 64<<10 { // would take too long
			rounds = 1
		}
		for range rounds {
			if again := encode(t, s, v); !bytes.Equal(first, again) {
				t.Errorf("%.200v is other bytes each time", v)
				break
			}
		}
	}
}
