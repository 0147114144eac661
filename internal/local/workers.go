package local

import "sync"

// workers runs the work that otter leaves for later: to note which entries were used, and to evict.
// It is done after every few hits, and on a goroutine of its own, for to do it costs as much as
// these hits.
type workers struct {
	mu      sync.Mutex // guards closed, and that nobody joins running after
	closed  bool
	running sync.WaitGroup
}

// run does not wait for the work, which otter allows only if that waits for nobody either.
func (w *workers) run(work func()) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		work() // for who is late; there is next to nothing to do
		return
	}
	w.running.Add(1)
	w.mu.Unlock()
	go func() {
		defer w.running.Done()
		work()
	}()
}

// close waits for the work that is being done. There is no goroutine after.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.running.Wait()
}
