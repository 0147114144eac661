package guardtest_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fakeTB is a test that is expected to fail. It records how it fails.
type fakeTB struct {
	testing.TB // nil: what isn't below must not be called

	mu       sync.Mutex // guards what follows
	fatal    string
	errors   []string
	logged   []string
	cleanups []func()
}

func (f *fakeTB) Helper() {}

func (f *fakeTB) Name() string { return "fake" }

func (f *fakeTB) Cleanup(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cleanups = append(f.cleanups, do)
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *fakeTB) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *fakeTB) Logf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logged = append(f.logged, fmt.Sprintf(format, args...))
}

// asTest runs a function like a test, with its cleanups, and returns the result.
func asTest(test func(tb testing.TB)) *fakeTB {
	f := &fakeTB{}
	over := make(chan struct{})
	go func() {
		defer close(over)
		test(f)
	}()
	<-over
	for _, do := range slices.Backward(f.cleanups) {
		do()
	}
	return f
}

// diesWith checks that it ended with tb.Fatalf and these words.
func (f *fakeTB) diesWith(t *testing.T, words ...string) {
	t.Helper()
	if f.fatal == "" {
		t.Error("tb.Fatalf was not called")
	}
	for _, w := range append(words, "guardtest: ") {
		if !strings.Contains(f.fatal, w) {
			t.Errorf("tb.Fatalf said %q; want %q in it", f.fatal, w)
		}
	}
}

// goesWell checks that it didn't fail.
func (f *fakeTB) goesWell(t *testing.T) {
	t.Helper()
	if f.fatal != "" || len(f.errors) > 0 {
		t.Errorf("it failed with %q, %q", f.fatal, f.errors)
	}
}
