package middleware

import (
	"bytes"
	"container/list"
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/report"
)

// backlog is what this process keeps for clients that read more slowly than it writes, beyond the
// runs that MaxLoads bounds: the bodies of responses whose handlers have ended or wait for these
// clients, and of what is stored. A body that several clients are sent counts once, and equal
// responses share one body. Above the bound, the body is dropped whose clients have got on longest
// ago: their connections are cut. So whoever reads keeps its response, and whoever doesn't makes
// room.
//
// It is safe for concurrent use.
type backlog struct {
	most  int64       // bytes; negative: no bound
	told  func()      // called when the first client is cut
	first atomic.Bool // that was so

	mu     sync.Mutex // guards what follows
	held   int64
	bodies map[bodyOf]*owed // the newest of each
	order  list.List        // of *owed that count, in the order in which their clients got on last
}

// bodyOf says which response a body is of.
type bodyOf struct{ key, selected string }

// owed is a body that clients are sent. It is guarded by the backlog's mutex.
type owed struct {
	of     bodyOf
	body   []byte
	size   int64
	takers map[*taker]struct{}
	counts *list.Element // nil: it doesn't count, for nobody takes it, or it has been dropped
}

// taker is a client that is sent a body, and its writer: each piece that it has taken keeps the
// body longer.
type taker struct {
	http.ResponseWriter
	backlog *backlog
	owed    *owed

	mu   sync.Mutex // guards what follows
	done bool       // nothing may be done with the writer any more
}

// bodyBehind is the size above which bodies count. A connection takes up a part of that anyhow, and
// a piece of this size is written at a time.
const bodyBehind = flowChunk

// takes begins to send somebody a body.
func (b *backlog) takes(o *owed, w http.ResponseWriter) *taker {
	t := &taker{ResponseWriter: w, backlog: b, owed: o}
	b.mu.Lock()
	if o.takers == nil {
		o.takers = map[*taker]struct{}{}
	}
	o.takers[t] = struct{}{}
	cut := b.count(o)
	b.mu.Unlock()
	b.cut(cut)
	return t
}

// stays has what is owed count from when nothing but its clients bounds it. res is the response, if
// that is whole.
func (b *backlog) stays(o *owed, body []byte, res *response) {
	b.mu.Lock()
	b.leaves(o)
	if o.size = int64(cap(body)); res != nil {
		o.of, o.body = bodyOf{res.key, res.selected}, body
	}
	cut := b.count(o)
	b.mu.Unlock()
	b.cut(cut)
}

// count has a body count that somebody takes, and returns those who have to make room.
func (b *backlog) count(o *owed) (cut []*taker) {
	if o.counts != nil || o.size == 0 || len(o.takers) == 0 {
		return nil
	}
	b.held += o.size
	o.counts = b.order.PushBack(o)
	if o.body != nil {
		if b.bodies == nil {
			b.bodies = map[bodyOf]*owed{}
		}
		b.bodies[o.of] = o
	}
	for b.most >= 0 && b.held > b.most && b.order.Len() > 1 {
		dropped := b.order.Front().Value.(*owed)
		b.leaves(dropped)
		for t := range dropped.takers {
			cut = append(cut, t)
		}
	}
	return cut
}

// leaves has a body count no longer.
func (b *backlog) leaves(o *owed) {
	if o.counts == nil {
		return
	}
	b.held -= o.size
	b.order.Remove(o.counts)
	if o.counts = nil; b.bodies[o.of] == o {
		delete(b.bodies, o.of)
	}
}

// cut ends connections: what is being written fails at once. What the writers do takes no lock of
// others.
func (b *backlog) cut(all []*taker) {
	for _, t := range all {
		t.mu.Lock()
		if !t.done { // an error says that a layer in front knows no deadlines
			_ = http.NewResponseController(t.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
		}
		t.mu.Unlock()
	}
	if len(all) > 0 && b.first.CompareAndSwap(false, true) && b.told != nil {
		b.told()
	}
}

// of returns what is owed to those who are sent this response: the same as to others who are sent
// an equal one.
func (b *backlog) of(res *response) *owed {
	of := bodyOf{res.key, res.selected}
	b.mu.Lock()
	other := b.bodies[of]
	b.mu.Unlock()
	if other != nil && (&other.body[0] == &res.body[0] || bytes.Equal(other.body, res.body)) {
		return other
	}
	return &owed{of: of, body: res.body, size: int64(cap(res.body))}
}

// Write writes a piece at a time.
func (t *taker) Write(p []byte) (int, error) { return inPieces(t, p, t.ResponseWriter.Write) }

// inPieces writes, and takes note of each piece that the client has taken.
func inPieces[T string | []byte](t *taker, p T, write func(T) (int, error)) (n int, _ error) {
	for {
		piece := p[n:min(n+flowChunk, len(p))]
		some, err := write(piece)
		t.got()
		switch n += some; {
		case err != nil || n >= len(p):
			return n, err
		case some < len(piece):
			return n, io.ErrShortWrite
		}
	}
}

// got takes note that the client has taken something.
func (t *taker) got() {
	if t == nil {
		return
	}
	t.backlog.mu.Lock()
	defer t.backlog.mu.Unlock()
	if at := t.owed.counts; at != nil {
		t.backlog.order.MoveToBack(at)
	}
}

// close ends what takes began. Whoever has it cut does nothing with the writer from then on. Nil is
// a client that doesn't count.
func (t *taker) close() {
	if t == nil {
		return
	}
	b := t.backlog
	b.mu.Lock()
	if delete(t.owed.takers, t); len(t.owed.takers) == 0 {
		b.leaves(t.owed)
	}
	b.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = true
}

// hands writes what a handler hands over at once, and keeps for as long as its client takes for it.
func hands[T string | []byte](b *backlog, w http.ResponseWriter, p T, write func(T) (int, error)) (int, error) {
	if len(p) <= bodyBehind {
		return write(p)
	}
	t := b.takes(&owed{size: int64(len(p))}, w)
	defer t.close()
	return inPieces(t, p, write)
}

var cutLine = report.Line{Level: slog.LevelWarn, See: "responses",
	Text:  "cacheguard: clients that have read nothing for long are cut off",
	Means: "what is kept for slow clients has reached MaxBacklog, which is too little, or somebody attacks",
}

// cuts tells the operator that connections are cut, which happens when MaxBacklog is too little or
// somebody attacks.
func (c *Cache) cuts() {
	cutLine.Log(context.Background(), c.opts.Logger, "cache", c.opts.Name, "bytes", c.opts.MaxBacklog)
}

// lends returns a response as it is to be sent, and the writer for it. The taker is to be closed.
func (b *backlog) lends(w http.ResponseWriter, res *response) (http.ResponseWriter, *response, *taker) {
	if len(res.body) <= bodyBehind {
		return w, res, nil
	}
	o := b.of(res)
	t, shared := b.takes(o, w), *res
	shared.body = o.body
	return t, &shared, t
}

// send answers a request with a response that is there.
func (c *Cache) send(w http.ResponseWriter, r *http.Request, res *response, age time.Duration, status string) {
	w, res, t := c.backlog.lends(w, res)
	defer t.close()
	res.serve(w, r, age, status)
}
