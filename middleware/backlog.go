package middleware

import (
	"bytes"
	"container/list"
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/report"
)

// backlog limits the memory that this process keeps for clients that read more slowly than it
// writes. It counts the bodies of stored responses that are being sent, and the bodies of responses
// whose handlers have ended or wait for these clients. It doesn't count the responses of handlers
// that are working, because MaxLoads limits how many handlers work. A body that is sent to several
// clients is counted once, and equal responses share one body. Above the limit, backlog drops
// bodies and closes the connections of their clients.
//
// A body is unread until one of its clients has taken flowChunk bytes of it. If the unread bodies
// take more than half of the limit, backlog drops the oldest of them. Otherwise it drops, of the
// bodies that were read, the one whose clients have taken nothing for the longest time. It never
// drops the newest body. So new clients find room, even if all others have stopped reading. Clients
// that take nothing can't displace a client that reads, as long as the bodies that were read, and
// each new body, take at most half of the limit. But other clients that take bytes can displace a
// client that reads, if their bodies need the room and this client is the slowest. The operating
// system may take some megabytes for a client that reads nothing, so against such clients the rule
// protects only as far as bodies are larger than that.
//
// A backlog is safe for concurrent use.
type backlog struct {
	most  int64       // the limit in bytes; negative: no limit
	told  func()      // called when the first client is cut
	first atomic.Bool // told was called

	mu     sync.Mutex       // guards the fields below
	bodies map[bodyOf]*owed // the newest owed of each response
	unread queue
	read   queue
}

// queue has counted bodies, as *owed. The clients of the first one have taken nothing for the
// longest time.
type queue struct {
	list.List
	held int64 // the bytes of these bodies
}

// bodyOf identifies the response that a body belongs to.
type bodyOf struct{ key, selected string }

// owed is a body that is being sent to clients. The backlog's mutex guards all fields except of and
// body, which are set before others can find the owed.
type owed struct {
	of     bodyOf
	body   []byte
	size   int64
	takers map[*taker]struct{}
	read   bool // its place is in the backlog's queue named read
	// nil: the body is not counted, because its handler still works, because no client reads it, or
	// because it has been dropped.
	counts *list.Element
}

// taker is a client to which a body is being sent, with its writer. When the client has taken a
// piece, the body moves to the end of the queue read.
type taker struct {
	http.ResponseWriter
	backlog *backlog
	owed    *owed
	piece   int // how many bytes of the next piece the client has taken

	mu   sync.Mutex // guards the fields below
	done bool       // the writer must not be used any more
}

// bodyBehind is the size in bytes above which bodies are counted. Smaller bodies aren't counted,
// because a connection has buffers of about this size in any case, and a body is written in pieces
// of this size.
const bodyBehind = flowChunk

// takes records that a body is being sent to a client.
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

// stays begins to count a body. Call stays when only the body's clients still decide how long the
// body stays in memory. res is the response, or nil if it isn't whole.
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

// count counts a body that at least one client reads. It returns the clients whose connections must
// be closed to make room.
func (b *backlog) count(o *owed) (cut []*taker) {
	if o.counts != nil || o.size == 0 || len(o.takers) == 0 {
		return nil
	}
	b.enqueue(o)
	if o.body != nil {
		if b.bodies == nil {
			b.bodies = map[bodyOf]*owed{}
		}
		b.bodies[o.of] = o
	}
	for b.most >= 0 && b.unread.held+b.read.held > b.most {
		dropped := b.worst(o)
		if dropped == nil {
			break
		}
		b.leaves(dropped)
		for t := range dropped.takers {
			cut = append(cut, t)
		}
	}
	return cut
}

// worst returns the body to drop, but never the newest one. It returns nil if there is no other
// body.
func (b *backlog) worst(newest *owed) *owed {
	queues := [...]*queue{&b.read, &b.unread}
	if b.unread.held > b.most/2 {
		slices.Reverse(queues[:])
	}
	for _, q := range queues {
		if first := q.Front(); first != nil && first.Value != newest {
			return first.Value.(*owed)
		}
	}
	return nil
}

func (b *backlog) queueOf(o *owed) *queue {
	if o.read {
		return &b.read
	}
	return &b.unread
}

// enqueue puts a body at the end of its queue.
func (b *backlog) enqueue(o *owed) {
	q := b.queueOf(o)
	q.held += o.size
	o.counts = q.PushBack(o)
}

func (b *backlog) dequeue(o *owed) {
	q := b.queueOf(o)
	q.held -= o.size
	q.Remove(o.counts)
	o.counts = nil
}

// leaves ends the counting of a body.
func (b *backlog) leaves(o *owed) {
	if o.counts == nil {
		return
	}
	if b.dequeue(o); b.bodies[o.of] == o {
		delete(b.bodies, o.of)
	}
}

// cut closes connections, so that writes that are under way fail at once. It is called without the
// backlog's mutex, so that a slow writer doesn't hold up other clients.
func (b *backlog) cut(all []*taker) {
	for _, t := range all {
		t.mu.Lock()
		if !t.done { // an error means that a layer in front doesn't support deadlines
			_ = http.NewResponseController(t.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
		}
		t.mu.Unlock()
	}
	if len(all) > 0 && b.first.CompareAndSwap(false, true) && b.told != nil {
		b.told()
	}
}

// of returns the owed for this response. If an equal response is being sent to clients, of returns
// the owed of that response.
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

// Write writes p to the client, one piece at a time.
func (t *taker) Write(p []byte) (int, error) { return inPieces(t, p, t.ResponseWriter.Write) }

// inPieces writes p in pieces, and records what the client has taken.
func inPieces[T string | []byte](t *taker, p T, write func(T) (int, error)) (n int, _ error) {
	for {
		piece := p[n:min(n+flowChunk, len(p))]
		some, err := write(piece)
		t.got(some)
		switch n += some; {
		case err != nil || n >= len(p):
			return n, err
		case some < len(piece):
			return n, io.ErrShortWrite
		}
	}
}

// got records that the client, or the operating system for it, has taken n more bytes. Only after
// each flowChunk bytes the body counts as read and moves to the end of the queue read, because
// fewer bytes may still be in a buffer of the server.
func (t *taker) got(n int) {
	if t == nil {
		return
	}
	if t.piece += n; t.piece < flowChunk {
		return
	}
	t.piece = 0
	b, o := t.backlog, t.owed
	b.mu.Lock()
	defer b.mu.Unlock()
	if o.counts == nil {
		o.read = true
		return
	}
	b.dequeue(o)
	o.read = true
	b.enqueue(o)
}

// close records that the body is no longer sent to this client. After close, cut doesn't use the
// writer any more. t is nil for a client that isn't counted.
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

// hands writes p to the client. p is what a handler has passed to one Write. If p has more than
// bodyBehind bytes, the backlog counts p until the write returns, because the handler waits for its
// client in this time. lost says that an earlier write to this client has failed. Then this write
// fails at once, too, so hands doesn't count p. Otherwise the backlog could cut clients that read
// to make room for p.
func hands[T string | []byte](
	b *backlog, lost bool, w http.ResponseWriter, p T, write func(T) (int, error),
) (int, error) {
	if lost || len(p) <= bodyBehind {
		return write(p)
	}
	t := b.takes(&owed{size: int64(len(p))}, w)
	defer t.close()
	return inPieces(t, p, write)
}

var cutLine = report.Line{Level: slog.LevelWarn, See: "responses",
	Text:  "cacheguard: clients that have read nothing for long are cut off",
	Means: "the bodies that slow clients still read have reached MaxBacklog: it is too small, or this is an attack",
}

// cuts logs that connections are closed. This happens when MaxBacklog is too small or during an
// attack.
func (c *Cache) cuts() {
	cutLine.Log(context.Background(), c.opts.Logger, "cache", c.opts.Name, "bytes",
		c.opts.MaxBacklog)
}

// lends returns the response to be sent and the writer for it. Call lends only if the client gets
// bytes of the body, because it makes room for the body. The caller must call close of the taker,
// even if the taker is nil.
func (b *backlog) lends(
	w http.ResponseWriter, res *response,
) (http.ResponseWriter, *response, *taker) {
	if len(res.body) <= bodyBehind {
		return w, res, nil
	}
	o := b.of(res)
	t, shared := b.takes(o, w), *res
	shared.body = o.body
	return t, &shared, t
}

// send answers a request with a complete response.
func (c *Cache) send(
	w http.ResponseWriter, r *http.Request, res *response, age time.Duration, status string,
) {
	res.serve(&c.backlog, w, r, age, status)
}
