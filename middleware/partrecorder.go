package middleware

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// ranged lets the handler answer a request for a range. If no whole response is fresh, and the
// request asks for one range and doesn't identify its user, ranged also stores the part in the
// handler's response.
func (x *exchange) ranged() {
	if x.oneRange() && !x.forced && !identified(x.r, nil) {
		next := x.next
		x.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x.record(w, r, next)
		})
	}
	x.alone("uri-miss")
}

// record runs the handler while it holds the lease of the resource's parts. So if the part is
// purged meanwhile, it is not stored.
func (x *exchange) record(w http.ResponseWriter, r *http.Request, next http.Handler) {
	h := x.cache.hold(r.Context(), x.key)
	if h == nil {
		next.ServeHTTP(w, r)
		return
	}
	asked := *r // a copy, because the handler may change the request
	asked.Header = r.Header.Clone()
	p := &partRecorder{
		x: x, asked: &asked, to: w, passer: passerOf(w), header: w.Header().Clone(), lease: h,
		sent: x.cache.sends(),
	}
	p.before, p.idle.L = x.cache.inFront(p.header), &p.mu
	defer p.release() // also when the handler panics
	bare := *r
	bare.Body, bare.Trailer = http.NoBody, nil // see prepare
	defer func() { r.Pattern = bare.Pattern }()
	next.ServeHTTP(p, &bare)
	p.finish()
}

// partRecorder is the ResponseWriter of a handler that answers a request for a range. If the part
// can be stored, the handler writes it to memory, and a second goroutine, which only the client can
// block, writes it to the client. Any other response, and a response that is flushed, is written
// directly to the client. The lease is given back before anything waits for the client. So a slow
// client holds neither the lease nor a slot, and other parts of the resource can be stored.
//
// The handler has a header map of its own, because it may change the map while the header is sent
// to the client.
type partRecorder struct {
	x      *exchange
	asked  *http.Request
	to     http.ResponseWriter
	passer *passer // the result of passerOf(to)
	header http.Header
	before http.Header
	lease  *holding
	sent   sending // when the request was passed to the handler

	mu      sync.Mutex // guards the fields below: handlers may write from goroutines of their own
	decided bool       // the head is written
	over    bool       // the handler has returned
	on      bool       // the response is being recorded
	stored  bool
	res     *response
	verdict verdict
	length  int         // the length of the part's body
	head    http.Header // the header for the client, until it is sent
	gone    int         // how many bytes of the body were written to the client
	flowing bool        // a goroutine writes to the client
	broken  bool        // nothing more may be written
	thrown  any         // the value with which the client's writer panicked
	taker   *taker      // its client, while pass waits for it
	idle    sync.Cond
}

func (p *partRecorder) Header() http.Header { return p.header }

func (p *partRecorder) WriteHeader(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.writeHeader(status)
	}
}

func (p *partRecorder) writeHeader(status int) {
	c := p.x.cache
	switch {
	case p.decided:
		if p.on && contradicts(status, p.res.status) {
			p.pass()
		}
		if !p.on {
			p.to.WriteHeader(status) // the server logs that it is too late
		}
		return
	case status >= 200 || status == http.StatusSwitchingProtocols:
		p.decided = true
		if p.res, p.verdict, p.length = c.partOf(p.asked, p.x.key, status, p.header, p.before,
			p.sent.at); p.res != nil && p.describes() {
			p.on, p.head = true, p.header.Clone()
			p.res.body = make([]byte, 0, p.length)
			p.says(0)
			return
		}
		if status == http.StatusOK || status == http.StatusPartialContent && p.verdict.remember {
			c.parts.none(p.x.key, c.opts.HitForMiss)
		}
		p.lease.put(nothingStored)
	}
	p.sync(p.header)
	p.to.WriteHeader(status)
}

// describes reports whether all fields of the part are known. In the response to a request with
// If-Range a handler may leave out most fields, because the client has them already (RFC 9110,
// section 15.3.7). Then the part needs the fields of a stored part.
func (p *partRecorder) describes() bool {
	return p.asked.Header["If-Range"] == nil ||
		p.lease.prev != nil && p.lease.prev.sameVersion(p.res)
}

// sync makes the client's header equal to the handler's header.
func (p *partRecorder) sync(header http.Header) {
	clear(p.to.Header())
	maps.Copy(p.to.Header(), header)
}

func (p *partRecorder) Write(b []byte) (int, error) {
	switch kept, err := p.keep(b); {
	case err != nil:
		return 0, err
	case kept:
		return len(b), nil
	}
	return p.to.Write(b)
}

// keep records b. If the body becomes longer than its Content-Range says, keep ends the recording,
// because nobody knows whether the body or the field is right. If the handler has returned, keep
// returns errOver.
func (p *partRecorder) keep(b []byte) (kept bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false, errOver
	}
	if !p.decided {
		p.writeHeader(http.StatusOK)
	}
	if !p.on || len(p.res.body)+len(b) > p.length {
		p.pass()
		return false, nil
	}
	if p.res.body = append(p.res.body, b...); len(p.res.body)-p.gone > buffered && !p.flowing {
		p.flowing = true
		go func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.flow()
		}()
	}
	return true, nil
}

// If nothing is recorded, ReadFrom lets the client's writer read from src itself.
func (p *partRecorder) ReadFrom(src io.Reader) (int64, error) {
	switch kept, err := p.keep(nil); {
	case err != nil:
		return 0, err
	case kept:
		return io.Copy(writerOnly{p}, src)
	}
	return io.Copy(p.to, src)
}

// Unwrap returns the client's writer, for code that flushes or takes over the connection. Before
// that it sends everything written so far.
func (p *partRecorder) Unwrap() http.ResponseWriter {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pass()
	return p.to
}

// Flush is for handlers that use the type http.Flusher.
func (p *partRecorder) Flush() { _ = p.FlushError() }

// FlushError sends everything written so far to the client now.
func (p *partRecorder) FlushError() error {
	if _, err := p.keep(nil); err != nil { // keep decides the header
		return err
	}
	return http.NewResponseController(p.Unwrap()).Flush()
}

// flow writes the recorded bytes to the client. The caller has set flowing.
func (p *partRecorder) flow() {
	defer func() {
		p.flowing = false
		p.idle.Broadcast()
	}()
	for !p.broken && (p.head != nil || p.gone < len(p.res.body)) {
		head, b := p.head, p.res.body[p.gone:min(p.gone+flowChunk, len(p.res.body))]
		p.head = nil
		p.broken = p.unlocked(head, b) != nil || p.broken
		p.gone += len(b)
		p.taker.got(len(b))
	}
}

// unlocked writes to the client while the handler continues. If the writer panics, the handler
// panics later.
func (p *partRecorder) unlocked(head http.Header, b []byte) (err error) {
	p.mu.Unlock()
	defer p.mu.Lock()
	defer func() {
		if v := recover(); v != nil {
			p.mu.Lock()
			p.thrown, p.broken = v, true
			p.mu.Unlock()
		}
	}()
	if head != nil {
		p.sync(head)
		p.to.WriteHeader(http.StatusPartialContent)
	}
	return p.passer.behind(b)
}

// pass ends the recording, and waits until all recorded bytes have been sent to the client, or
// can't be sent.
func (p *partRecorder) pass() {
	if !p.on {
		return
	}
	if !p.stored {
		p.lease.put(nothingStored)
		p.says(cacheguard.ReasonRange)
	}
	at, body := p.passer.place, p.res.body
	at.awaits()
	if p.taker == nil && len(body) > bodyBehind && p.gone < len(body) && !p.broken {
		b := &p.x.cache.backlog
		p.taker = b.takes(&owed{size: int64(cap(body))}, p.to)
		p.taker.got(p.gone)
	}
	for p.flowing {
		p.idle.Wait()
	}
	if p.on { // no other goroutine of the handler has ended the recording meanwhile
		p.flowing = true
		p.flow()
		p.on, p.res = false, nil
		p.taker.close()
		p.taker = nil
	}
	p.mu.Unlock()
	at.resumes() // resumes may take long
	p.mu.Lock()
	if v := p.thrown; v != nil {
		p.thrown = nil
		panic(v)
	}
}

// says records, for Cache-Status and observers, why the part is not stored. If why is 0, the part
// is stored. Only the first reason is kept.
func (p *partRecorder) says(why cacheguard.Reason) {
	to := p.passer
	to.mu.Lock()
	defer to.mu.Unlock()
	if why == 0 || to.status.reason == 0 {
		to.status.stored, to.status.reason = why == 0, why
	}
}

// finish stores the part, if it is whole.
func (p *partRecorder) finish() {
	p.mu.Lock()
	p.over = true
	c, res := p.x.cache, p.res // a goroutine of the handler may still write too much, see keep
	complete := p.on && len(res.body) == p.length &&
		!slices.ContainsFunc(sortedNames(p.header), func(name string) bool {
			return strings.HasPrefix(name, http.TrailerPrefix)
		})
	p.mu.Unlock()
	if !complete {
		return
	}
	if prev := p.lease.prev; prev != nil {
		both, ok := prev.with(res, c.opts.MaxBody)
		switch {
		case ok:
			res = both
		case prev.sameVersion(res) &&
			(len(prev.body) > len(res.body) || p.asked.Header["If-Range"] != nil):
			// The parts can't be joined. A small part must not replace larger ones. The answer to a
			// request with If-Range may lack fields, so it can't be stored alone.
			return
		}
	}
	e := c.entry(p.verdict, res)
	if c.purges.since(p.sent, e.Tags) {
		p.says(cacheguard.ReasonPurged)
		return
	}
	stored := !e.NoShare && !e.NoStore && p.lease.put(e)
	p.mu.Lock()
	p.stored = stored
	p.mu.Unlock()
	if _, whole := res.whole(); whole && stored {
		p.x.completed()
	}
}

// release gives everything back that the recorder holds. It is called at the end, no matter how the
// handler has ended.
func (p *partRecorder) release() {
	p.passer.place.leave() // the client may take any time to read the rest
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true // also if the handler has panicked
	if !p.decided {
		p.lease.put(nothingStored)
		p.sync(p.header)
		return
	}
	p.pass()
	maps.Copy(p.to.Header(), p.header) // its trailer
}

var nothingStored = cacheguard.Entry[*response]{NoShare: true, LeaveStored: true}

// holding is the lease of a resource's parts. A request holds it while its handler runs outside of
// the load.
type holding struct {
	ends   func()
	prev   *response // the response that was stored
	once   sync.Once
	result chan cacheguard.Entry[*response]
	over   chan struct{}
	stored bool // set before over is closed
}

// holdTimeout is how long a request waits for a lease. If another request has the lease, that
// request stores something for the same resource.
const holdTimeout = 20 * time.Millisecond

// hold takes the lease of a resource's parts. It returns nil if this process may not begin to store
// a part, or if the lease doesn't get free within holdTimeout. The caller must give the lease back
// by put.
func (c *Cache) hold(ctx context.Context, key string) *holding {
	if !c.parts.begins(key, c.mostRecorded()) {
		return nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h := &holding{
		ends:   func() { c.parts.ends(key) },
		result: make(chan cacheguard.Entry[*response], 1), over: make(chan struct{}),
	}
	granted := make(chan *response)
	go func() {
		defer close(h.over)
		defer cancel()
		res, err := c.loads.RefreshEntry(ctx, partKey(key), func(
			ctx context.Context, prev cacheguard.Result[*response],
		) (cacheguard.Entry[*response], error) {
			select {
			case granted <- prev.Value:
			case <-ctx.Done():
				return nothingStored, nil
			}
			select {
			case e := <-h.result:
				return e, nil
			case <-ctx.Done():
				return nothingStored, nil
			}
		})
		h.stored = err == nil && res.FreshFor > 0
	}()
	timer := time.NewTimer(holdTimeout)
	defer timer.Stop()
	select {
	case h.prev = <-granted:
		return h
	case <-timer.C:
	case <-h.over:
	}
	cancel()
	h.ends()
	return nil
}

// put gives the lease back with the entry to store, and reports whether the entry was stored. Then
// another request may store a part of the resource. Only the first call has an effect.
func (h *holding) put(e cacheguard.Entry[*response]) (stored bool) {
	h.once.Do(func() {
		defer h.ends()
		h.result <- e
		if e.NoShare {
			return
		}
		<-h.over
		stored = h.stored
	})
	return stored
}

// partial decides for which resources this process stores parts. For each resource only one request
// at a time stores a part. If a resource's parts can't be stored, no part of it is recorded for a
// while.
type partial struct {
	mu   sync.Mutex // guards the fields below
	busy map[string]bool
	// Keys of resources whose parts can't be stored, and until when that is remembered.
	not    map[digest]time.Time
	digest digester
}

const (
	mostUnparted = 4096
	// One request may record a part for this many slots of MaxLoads; it occupies one of them.
	recordShare = 8
)

// mostRecorded returns how many requests may record parts at a time. The number is small, so that
// slots are left for other requests.
func (c *Cache) mostRecorded() int {
	if c.opts.MaxLoads <= 0 { // there is no limit, or a Limiter
		return defaultMaxLoads / recordShare
	}
	return c.opts.MaxLoads / recordShare
}

func (p *partial) begins(key string, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy == nil {
		p.busy, p.not = map[string]bool{}, map[digest]time.Time{}
	}
	if p.busy[key] || len(p.busy) >= most || time.Now().Before(p.not[p.digest.of(key)]) {
		return false
	}
	p.busy[key] = true
	return true
}

func (p *partial) ends(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, key)
}

// none records, for the given duration, that a resource's parts can't be stored. If there are
// mostUnparted such records, it forgets all of them first: they only save tries.
func (p *partial) none(key string, during time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.not) >= mostUnparted {
		clear(p.not)
	}
	p.not[p.digest.of(key)] = time.Now().Add(during)
}
