package middleware

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// writer returns the recorder, with Hijack if the client's connection can be taken over.
func (rec *recorder) writer() http.ResponseWriter {
	if canHijack(rec.w) {
		return hijackable{rec}
	}
	return rec
}

// canHijack reports whether http.ResponseController could take over the connection of a writer.
func canHijack(w http.ResponseWriter) bool {
	for {
		switch inner := w.(type) {
		case http.Hijacker:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = inner.Unwrap()
		default:
			return false
		}
	}
}

// hijackable is a recorder whose connection can be taken over. A handler may look for the type
// http.Hijacker.
type hijackable struct{ *recorder }

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.takeOver() }

// Unwrap is for http.ResponseController. It needs the client's writer to set deadlines and for
// other methods that this type doesn't have.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.w }

// If nothing is recorded any more, ReadFrom lets the client's writer read from src itself.
func (rec *recorder) ReadFrom(src io.Reader) (int64, error) {
	if at, direct := rec.passes(); direct {
		return at.copy(rec.w, src)
	}
	return io.Copy(writerOnly{rec}, src)
}

// passes reports whether the rest of the body needs only to be passed on. If so, it sends the bytes
// that came before, and returns the slot.
func (rec *recorder) passes() (at *place, direct bool) {
	rec.mu.Lock()
	defer rec.mu.Unlock() // drain panics if the client's writer has panicked
	if rec.status == 0 || rec.on || rec.over || rec.to != toClient || rec.promised >= 0 {
		return nil, false
	}
	rec.drain()
	return rec.place, true
}

type writerOnly struct{ io.Writer }

// FlushError sends everything written so far to the client now.
func (rec *recorder) FlushError() error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.over {
		return errOver
	}
	if rec.status == 0 {
		rec.head(http.StatusOK)
	}
	if rec.held {
		return nil // its client gets the stored response, so nobody waits for these bytes
	}
	if rec.on && rec.live {
		rec.announce()
	} else if rec.on && rec.timer == nil && !rec.run.cache.opts.RecordFlushed {
		rec.interim = true
		rec.timer = time.AfterFunc(afterFlush, func() {
			rec.mu.Lock()
			defer rec.mu.Unlock()
			if rec.on && !rec.over {
				rec.stop(cacheguard.ReasonFlushed)
			}
		})
	}
	if rec.on {
		rec.flushes++
		rec.readers.Broadcast()
		if rec.w != nil && !canFlush(rec.w) {
			return http.ErrNotSupported
		}
		rec.flows()
		return nil
	}
	if rec.w == nil {
		return nil
	}
	rec.streams()
	rec.drain()
	_, err := rec.direct(func() (int, error) {
		return 0, http.NewResponseController(rec.w).Flush()
	})
	return err
}

// canFlush reports whether http.ResponseController could flush a writer.
func canFlush(w http.ResponseWriter) bool {
	for {
		switch inner := w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = inner.Unwrap()
		default:
			return false
		}
	}
}

// Flush is FlushError for handlers that use the type http.Flusher.
func (rec *recorder) Flush() { _ = rec.FlushError() }

// takeOver gives the connection to the handler.
func (rec *recorder) takeOver() (net.Conn, *bufio.ReadWriter, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.over {
		return nil, nil, errOver
	}
	rec.stop(cacheguard.ReasonTakenOver) // before drain waits for the client
	rec.streams()
	rec.drain()
	conn, rw, err := http.NewResponseController(rec.w).Hijack()
	if err == nil {
		rec.run.client.answered = true
		rec.status = http.StatusSwitchingProtocols // nothing may be written as HTTP any more
	}
	return conn, rw, err
}

// inform sends an informational response. If the connection breaks, net/http's HTTP/2 server may
// still read the header while it is being changed, which ends the process (go.dev/issue/67940).
// inform adds a Content-Length, which isn't part of an informational response, because the server
// then reads a copy of the header.
func inform(w http.ResponseWriter, status int) {
	h := w.Header()
	length, had := h["Content-Length"]
	h["Content-Length"] = length
	w.WriteHeader(status)
	if !had {
		delete(h, "Content-Length")
	}
}
