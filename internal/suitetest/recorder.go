package suitetest

import (
	"fmt"
	"runtime"
	"sync"
)

// Recorder is the TB of a case. It keeps the lines, failures and skips that the case reports.
type Recorder struct {
	Failures []string

	mu      sync.Mutex // guards all other fields
	logs    []string
	skipped string
}

// Record runs a function on a new goroutine with a new Recorder. It returns the Recorder when the
// goroutine has ended. So the function may call Fatalf and Skipf, which end the goroutine.
func Record(do func(r *Recorder)) *Recorder {
	r, over := &Recorder{}, make(chan struct{})
	go func() {
		defer close(over)
		do(r)
	}()
	<-over
	return r
}

// Helper does nothing.
func (r *Recorder) Helper() {}

// Logf keeps a line.
func (r *Recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}

// Errorf keeps a failure.
func (r *Recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

// Fatalf keeps a failure and ends the goroutine.
func (r *Recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// Skipf keeps the reason why the case is skipped, and ends the goroutine.
func (r *Recorder) Skipf(format string, args ...any) {
	r.mu.Lock()
	r.skipped = fmt.Sprintf(format, args...)
	r.mu.Unlock()
	runtime.Goexit()
}
