package codectest_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/codectest"
	"github.com/cacheguard/cacheguard/internal/suitetest"
)

var errNone = errors.New("this is no value")

// broken is a codec of bytes that do one thing wrong: a value has its length in front, one byte.
type broken struct {
	append func(dst, v []byte) ([]byte, error)
	decode func(src []byte) ([]byte, error)
	name   func() string
}

func (b broken) Append(dst []byte, v []byte) ([]byte, error) { return b.append(dst, v) }
func (b broken) Decode(src []byte) ([]byte, error)           { return b.decode(src) }
func (b broken) Name() string                                { return b.name() }

func whole() broken {
	return broken{
		func(dst, v []byte) ([]byte, error) {
			if len(v) > 250 || string(v) == "refused" {
				return dst, errNone
			}
			if string(v) == "lost" {
				v = nil
			}
			return append(append(dst, byte(len(v))), v...), nil
		},
		func(src []byte) ([]byte, error) {
			if len(src) == 0 || int(src[0]) != len(src)-1 || len(src) > 251 {
				return nil, errNone
			}
			return append([]byte{}, src[1:]...), nil
		},
		func() string { return "short bytes" },
	}
}

func subject(c broken) codectest.Subject[[]byte] {
	return codectest.Subject[[]byte]{
		Codec:  c,
		Values: [][]byte{[]byte("a"), []byte("some text"), bytes.Repeat([]byte("b"), 250), {}},
		Losses: map[string]codectest.Loss[[]byte]{
			"lost": {Value: []byte("lost"), Becomes: []byte{}},
		},
		Refused: map[string][]byte{
			"too long": make([]byte, 251), "refused": []byte("refused"),
		},
		Garbage: map[string][]byte{
			"nothing": nil, "too much": []byte("\x01ab"), "too little": []byte("\xc8ab"),
		},
		Largest:   func(v []byte) int { return len(v) + 1 },
		Stable:    true,
		Delimited: true,
	}
}

// mutant is a way to break a codec, with the cases that must notice it.
type mutant struct {
	name   string
	caught []string
	mutate func(b *broken, was broken)
}

// Caught returns the mutant's name and the cases that must notice it.
func (m mutant) Caught() (name string, cases []string) { return m.name, m.caught }

var mutants = []mutant{
	{"a value comes back in capitals", []string{"round trip", "append"}, func(
		b *broken, was broken,
	) {
		b.decode = func(src []byte) ([]byte, error) {
			v, err := was.decode(src)
			return bytes.ToUpper(v), err
		}
	}},
	{"Append writes over dst", []string{"append"}, func(b *broken, was broken) {
		b.append = func(dst, v []byte) ([]byte, error) { return was.append(dst[:0], v) }
	}},
	{"what Append refuses loses dst", []string{"refused"}, func(b *broken, was broken) {
		b.append = func(dst, v []byte) ([]byte, error) {
			out, err := was.append(dst, v)
			if err != nil {
				return nil, err
			}
			return out, nil
		}
	}},
	{"Append refuses nothing", []string{"refused"}, func(b *broken, was broken) {
		b.append = func(dst, v []byte) ([]byte, error) {
			out, err := was.append(dst, v)
			if err != nil {
				return append(dst, 0), nil
			}
			return out, nil
		}
	}},
	{"Decode clears its source", []string{"source"}, func(b *broken, was broken) {
		b.decode = func(src []byte) ([]byte, error) {
			v, err := was.decode(src)
			clear(src)
			return v, err
		}
	}},
	{"Decode keeps its source", []string{"own values", "new values"}, func(b *broken, was broken) {
		b.decode = func(src []byte) ([]byte, error) {
			v, err := was.decode(src)
			if err != nil {
				return nil, err
			}
			return src[1 : 1+len(v)], nil
		}
	}},
	{"Decode has one buffer", []string{"new values"}, func(b *broken, was broken) {
		var one [256]byte
		b.decode = func(src []byte) ([]byte, error) {
			v, err := was.decode(src)
			return one[:copy(one[:], v)], err
		}
	}},
	{"one goroutine gets another's bytes", []string{"goroutines"}, func(b *broken, was broken) {
		var last atomic.Pointer[[]byte]
		b.decode = func(src []byte) ([]byte, error) {
			v, err := was.decode(src)
			last.Store(&v)
			for range 10 {
				runtime.Gosched()
			}
			return *last.Load(), err
		}
	}},
	{"it has no name", []string{"name"}, func(b *broken, _ broken) {
		b.name = func() string { return "" }
	}},
	{"its name changes", []string{"name"}, func(b *broken, _ broken) {
		var n atomic.Int64
		b.name = func() string { return fmt.Sprint("codec ", n.Add(1)) }
	}},
	{"garbage is a value", []string{"garbage", "cut"}, func(b *broken, was broken) {
		b.decode = func(src []byte) ([]byte, error) { v, _ := was.decode(src); return v, nil }
	}},
	{"garbage panics", []string{"garbage", "cut", "flipped"}, func(b *broken, was broken) {
		b.decode = func(src []byte) ([]byte, error) {
			v, err := was.decode(src)
			if err != nil {
				panic(err)
			}
			return v, nil
		}
	}},
	{"garbage takes a megabyte", []string{"garbage"}, func(b *broken, was broken) {
		b.decode = func(src []byte) ([]byte, error) {
			v, err := was.decode(src)
			if err != nil {
				sink.Store(&[]byte{1 << 20: 0})
			}
			return v, err
		}
	}},
	{"a flipped bit makes a value too long", []string{"flipped"}, func(b *broken, was broken) {
		b.decode = func(src []byte) ([]byte, error) {
			v, err := was.decode(src)
			if err != nil && len(src) > 100 {
				return make([]byte, 300), nil
			}
			return v, err
		}
	}},
	{"a loss that isn't documented", []string{"losses"}, func(b *broken, was broken) {
		b.append = func(dst, v []byte) ([]byte, error) {
			if string(v) == "lost" {
				v = []byte("los")
			}
			return was.append(dst, v)
		}
	}},
	{"values become too many bytes", []string{"size"}, func(b *broken, was broken) {
		b.append = func(dst, v []byte) ([]byte, error) {
			out, err := was.append(dst, v)
			return append(out, 0), err
		}
		b.decode = func(src []byte) ([]byte, error) { return was.decode(src[:max(0, len(src)-1)]) }
	}},
	{"bytes are others each time", []string{"stable"}, func(b *broken, was broken) {
		b.append = func(dst, v []byte) ([]byte, error) {
			out, err := was.append(dst, v)
			return append(out, byte(rand.Int())), err
		}
		b.decode = func(src []byte) ([]byte, error) { return was.decode(src[:max(0, len(src)-1)]) }
	}},
}

// sink keeps what a mutant allocates from being optimized away.
var sink atomic.Pointer[[]byte]

func suite() suitetest.Suite[codectest.Subject[[]byte], mutant] {
	s := suitetest.Suite[codectest.Subject[[]byte], mutant]{
		Mutants: mutants,
		Open: func(m mutant) (codectest.Subject[[]byte], func()) {
			b := whole()
			if m.mutate != nil {
				m.mutate(&b, whole())
			}
			return subject(b), func() {}
		},
		Tries:   func(string) int { return 1 },
		MaySkip: func(string) bool { return false },
	}
	for _, c := range codectest.Cases[[]byte]() {
		s.Cases = append(s.Cases, suitetest.Case[codectest.Subject[[]byte]]{
			Name: c.Name, Protects: c.Promise,
			Run: func(r *suitetest.Recorder, s codectest.Subject[[]byte]) { c.Run(r, s) },
		})
	}
	return s
}

func TestSuitePassesAGoodCodec(t *testing.T) { suite().Passes(t, mutant{}) }

func TestSuiteFailsBrokenCodecs(t *testing.T) { suite().FailsMutants(t) }

// Each case fails for at least one broken codec.
func TestEachCaseCatchesAMutant(t *testing.T) { suite().EachCaseCatches(t) }

func TestCasesAreNamed(t *testing.T) { suite().CasesAreNamed(t) }

// Without values a case proves nothing, so it fails. Without a field that it needs, it is skipped.
func TestWhatASubjectLacks(t *testing.T) {
	failures := func(c codectest.Case[[]byte], values ...[]byte) []string {
		return suitetest.Record(func(r *suitetest.Recorder) {
			c.Run(r, codectest.Subject[[]byte]{Codec: whole(), Values: values})
		}).Failures
	}
	for _, c := range codectest.Cases[[]byte]() {
		if len(failures(c)) == 0 {
			t.Errorf("%s passes without values", c.Name)
		}
		if got := failures(c, []byte("a")); len(got) > 0 {
			t.Errorf("%s: %q", c.Name, got)
		}
	}
}

// Compiles only if JSON is a subject.
var _ = codectest.Subject[string]{Codec: cacheguard.JSON[string]{}}
