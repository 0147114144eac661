package redistest

import "sync"

// hole swallows all traffic while it is on: those who pass stand and wait.
type hole struct {
	mu   sync.Mutex    // guards lift
	lift chan struct{} // closed when the hole ends, nil while there is none
}

// set turns the hole on or off; doing so twice is fine.
func (h *hole) set(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case on && h.lift == nil:
		h.lift = make(chan struct{})
	case !on && h.lift != nil:
		close(h.lift)
		h.lift = nil
	}
}

// lifted is closed when the hole ends; it is nil if there is none.
func (h *hole) lifted() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lift
}
