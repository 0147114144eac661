package middleware

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// mostPosts is how many responses to POST a cache records at a time, each up to MaxBody. It limits
// the memory for these responses, because MaxLoads doesn't count requests with POST.
const mostPosts = 16

// postRecorder records a response to POST if the response can be stored, and if it says that it is
// also the response to a GET for the same URL (RFC 9110, section 9.3.3). The client gets the
// response while it is written.
type postRecorder struct {
	http.ResponseWriter
	cache  *Cache
	asGet  *http.Request // a GET with the same URL and fields, from before the handler is called
	key    string        // the key of asGet
	target target
	before http.Header
	sent   time.Time

	mu      sync.Mutex // guards the fields below: handlers may write from goroutines of their own
	decided bool
	res     *response // nil: it is not stored
	verdict verdict
}

// recordsPost returns the recorder for a POST, or nil if its response may not be stored. The caller
// must call the recorder's end.
func (c *Cache) recordsPost(
	w http.ResponseWriter, r *http.Request, asGet *http.Request,
) *postRecorder {
	if !c.opts.StorePosts || asGet == nil || r.Method != http.MethodPost || identified(r, nil) ||
		namesFields(r.Header) || secondHost(r) || !readAlike(r, asGet) {
		return nil
	}
	if c.posts.Add(1) > mostPosts {
		c.posts.Add(-1)
		return nil
	}
	p := &postRecorder{
		ResponseWriter: w, cache: c, asGet: asGet, before: c.inFront(w.Header()),
		sent: time.Now(),
	}
	p.key = c.keys.key(asGet)
	p.target, _ = c.keys.target(asGet)
	return p
}

// readAlike reports whether a handler that has been given one of these requests could as well have
// been given the other, apart from the method and the body. The handler of a POST gets the request
// as it came. The key is made from the request as the options change it, so what they remove or
// replace must not reach a response for others.
func readAlike(r, asGet *http.Request) bool {
	return r.Host == asGet.Host && r.RequestURI == asGet.RequestURI && *r.URL == *asGet.URL &&
		(r.TLS == nil) == (asGet.TLS == nil) &&
		(r.TLS == nil || r.TLS.ServerName == asGet.TLS.ServerName) &&
		maps.EqualFunc(r.Header, asGet.Header, slices.Equal)
}

func (p *postRecorder) end() { p.cache.posts.Add(-1) }

func (p *postRecorder) WriteHeader(status int) {
	p.head(status)
	p.ResponseWriter.WriteHeader(status)
}

func (p *postRecorder) head(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case status < 200 && status != http.StatusSwitchingProtocols:
		return
	case p.decided:
		if p.res != nil && contradicts(status, p.res.status) {
			p.res = nil
		}
		return
	}
	p.decided = true
	all := canonical(p.Header())
	if v, ok := p.forGet(status, all); ok {
		p.res, p.verdict = p.cache.kept(p.asGet, p.key, status, all, p.before, v), v
	}
}

// forGet reports whether a response to POST is stored for GET. Its Content-Location must be the URL
// of the request, and it must have a lifetime of its own.
func (p *postRecorder) forGet(status int, all http.Header) (v verdict, ok bool) {
	c := p.cache
	if location := all["Content-Location"]; status != http.StatusOK || len(location) != 1 ||
		!p.target.is(location[0]) || all["Trailer"] != nil {
		return v, false
	}
	all = c.selectingOnly(all, p.before)
	now := time.Now()
	if _, basis := c.rules.lifetime(c.rules.directives(all), status, all, now); basis != explicit {
		return v, false
	}
	v = c.rules.judge(p.asGet, status, all, p.sent, now)
	return v, v.share && v.store && v.fresh > 0
}

// is reports whether the URL reference is the URL of the resource itself.
func (t target) is(reference string) bool {
	own, err := url.Parse(t.scheme + "://" + t.host + t.uri)
	if err != nil {
		return false
	}
	to, err := own.Parse(reference)
	return err == nil && to.User == nil && to.Fragment == "" &&
		origin(to.Scheme, to.Host) == origin(t.scheme, t.host) &&
		to.RequestURI() == own.RequestURI()
}

func (p *postRecorder) Write(b []byte) (int, error) {
	p.head(http.StatusOK)
	p.mu.Lock()
	if p.res != nil && len(p.res.body)+len(b) <= p.cache.opts.MaxBody {
		p.res.body = append(p.res.body, b...)
	} else {
		p.res = nil
	}
	p.mu.Unlock()
	n, err := p.ResponseWriter.Write(b)
	if err != nil { // the handler may leave out the rest
		p.mu.Lock()
		p.res = nil
		p.mu.Unlock()
	}
	return n, err
}

func (p *postRecorder) ReadFrom(src io.Reader) (int64, error) { return io.Copy(writerOnly{p}, src) }

// Unwrap is for http.ResponseController. A response that is flushed is stored as usual.
func (p *postRecorder) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Hijack lets the handler take over the connection, if the client's writer can do that. What it
// sends then is not recorded, so nothing is stored.
func (p *postRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(p.ResponseWriter).Hijack()
	if err == nil {
		p.mu.Lock()
		p.decided, p.res = true, nil
		p.mu.Unlock()
	}
	return conn, rw, err
}

// Flush is for handlers that use the type http.Flusher.
func (p *postRecorder) Flush() { _ = http.NewResponseController(p.ResponseWriter).Flush() }

// store stores the recorded response. Call store when the handler has returned and the old stored
// responses have been removed.
func (p *postRecorder) store() {
	p.head(http.StatusOK)
	p.mu.Lock()
	defer p.mu.Unlock()
	c, res := p.cache, p.res
	if res == nil {
		return
	}
	ctx := p.asGet.Context() // the handler may have changed the context of its request
	if length := res.header["Content-Length"]; length == nil && gaveUp(ctx) ||
		length != nil && !slices.Equal(length, []string{strconv.Itoa(len(res.body))}) {
		return
	}
	for name := range p.Header() {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return
		}
	}
	if res.header["Content-Type"] == nil && res.header["Content-Encoding"] == nil &&
		len(res.body) > 0 {
		res.header = maps.Clone(res.header)
		res.header["Content-Type"] = []string{http.DetectContentType(res.body)}
	}
	if e := c.entry(p.verdict, res); !e.NoShare && !e.NoStore && c.admits(res, p.verdict) {
		_ = c.loads.SetEntry(ctx, res.key, e) // the loader has logged it
	}
}
