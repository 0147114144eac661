package middleware

import "sync"

// outflow is what a recorder has for a client that reads slowly: those who wait for the response don't wait for that. Up to
// beginFlow bytes are written where the handler writes them, for the connection's buffers take them; what comes after that
// stands in the recorded body and is written by a goroutine. All fields are guarded by the recorder's mutex.
type outflow struct {
	out     []byte // the body as far as it is recorded
	sent    int    // how much of it was written to the client
	flowing bool   // the goroutine is there
	broken  bool   // nothing more is to be written
	thrown  any    // what a Write of the client's writer panicked with
	idle    sync.Cond
}

const (
	beginFlow = 64 << 10
	flowChunk = 64 << 10
)

// flows has the goroutine write what is recorded. It reports false if the caller has to write, now that nobody else does.
func (rec *recorder) flows() bool {
	if !rec.on || rec.written <= beginFlow {
		rec.drain()
		return false
	}
	if !rec.flowing {
		rec.flowing = true
		go rec.flow()
	}
	return true
}

// flow writes until everything that is recorded by then is written.
func (rec *recorder) flow() {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	defer func() {
		rec.flowing = false
		rec.idle.Broadcast()
	}()
	for !rec.broken && rec.sent < len(rec.out) {
		n, err := rec.writeUnlocked(rec.out[rec.sent:min(rec.sent+flowChunk, len(rec.out))])
		rec.sent += n
		rec.broken = rec.broken || err != nil
	}
}

// writeUnlocked writes to the client while the handler goes on. A panic of the client's writer is the handler's.
func (rec *recorder) writeUnlocked(p []byte) (n int, err error) {
	rec.mu.Unlock()
	defer rec.mu.Lock()
	defer func() {
		if v := recover(); v != nil {
			rec.thrown, err = v, errNobody
		}
	}()
	return rec.w.Write(p)
}

// settle waits until the goroutine is gone.
func (rec *recorder) settle() {
	for rec.flowing {
		rec.idle.Wait()
	}
}

// drain waits until the client has what was written before, or can't have it.
func (rec *recorder) drain() {
	rec.settle()
	if v := rec.thrown; v != nil {
		rec.thrown = nil
		panic(v)
	}
}
