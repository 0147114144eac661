package local

import "sync"

// workers runs the work that otter postpones: to record which entries were used, and to evict. This
// work is done after every few hits. It runs on its own goroutine, because it costs as much as
// these hits.
type workers struct {
	mu      sync.Mutex // guards closed, and ensures that nothing is added to running after close
	closed  bool
	running sync.WaitGroup
}

// Until close, run doesn't wait for the work, because otter calls run while it holds locks. After
// close, run does the work itself. otter allows both, because the work doesn't wait for other work.
func (w *workers) run(work func()) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		work() // after close there is hardly any work
		return
	}
	w.running.Add(1)
	w.mu.Unlock()
	go func() {
		defer w.running.Done()
		work()
	}()
}

// close waits for the running work. After close no goroutine is left.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.running.Wait()
}
