package middleware

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Invalidates returns next with a part of [Cache.Handler] in front of it, the part that handles
// unsafe methods. A successful request with POST, PUT, PATCH, DELETE or an unknown method removes
// the stored responses of its URL. Use it for routes that the cache doesn't answer:
// r.With(pages.Invalidates).Post("/products/{id}", save). Requests with other methods go to next
// unchanged.
func (c *Cache) Invalidates(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isSafe(r.Method) || r.Method == http.MethodConnect {
			next.ServeHTTP(w, r)
			return
		}
		c.change(w, r, next)
	})
}

// change lets the handler answer a request with an unsafe method, and then removes the stored
// responses that the request has made out of date (RFC 9111, section 4.4). These are the responses
// of the resource itself. With Options.InvalidateLocations they are also the responses of the URLs
// that the handler's response names on the same origin.
func (c *Cache) change(w http.ResponseWriter, r *http.Request, next http.Handler) {
	p := &passer{w: w, cache: c, status: cacheStatus{fwd: "method"}}
	var asGet *http.Request
	if inside := c.inside(r); c.keys.ok(inside) {
		asGet = inside.Clone(inside.Context()) // the handler may change its request
		asGet.Method = http.MethodGet
		key := c.keys.key(asGet) // made now, because chi changes its part of the context later
		p.outdate = func(status int, h http.Header, last bool) {
			c.outdate(asGet, key, status, h, last)
		}
	}
	inner := p.writer()
	if post := c.recordsPost(inner, r, asGet); post != nil {
		defer post.end()
		next.ServeHTTP(post, r)
		p.finish()
		post.store()
		return
	}
	next.ServeHTTP(inner, r)
	p.finish()
}

// outdate removes the stored responses that are out of date after a response to an unsafe request.
// r is the unsafe request with its method changed to GET.
//
// Anybody can send unsafe requests, so a budget limits these invalidations. Above the budget
// outdate removes the stored responses by their keys, which costs no place in the store's memory of
// invalidated tags. It finds only the keys for this request's spelling of the URL and for the
// variants that this request would get. Other variants stay until they are stale. The removal by
// keys also costs some look-ups, so outdate does it only once, when the handler has returned
// (last).
func (c *Cache) outdate(r *http.Request, key string, status int, h http.Header, last bool) {
	if status < 200 || status > 399 {
		return
	}
	t, ok := c.keys.target(r)
	if !ok {
		return
	}
	var tags []string
	now := time.Now()
	if own := t.tag(); c.changes.takes(own, now) {
		tags = append(tags, own)
	} else if last {
		c.removeOwn(r, key)
	}
	if c.opts.InvalidateLocations {
		for _, other := range t.locations(h) {
			if tag, err := c.urlTag(other); err == nil && c.changes.takes(tag, now) {
				tags = append(tags, tag)
			}
		}
	}
	if len(tags) > 0 {
		_ = c.invalidate(r.Context(), tags...) // the loader has logged it
	}
}

// removeOwn removes the stored responses that a GET with the fields of this request would get.
func (c *Cache) removeOwn(r *http.Request, key string) {
	ctx := context.WithoutCancel(r.Context())
	keys := []string{partKey(key)}
	// A source is removed before what is copied from it: see completed and publish. There are two
	// calls, because the nodes of a cluster carry out one call at different times.
	for _, base := range []string{identifiedKey(key), key} {
		level := base
		for range maxLevels {
			keys = append(keys, level)
			found, err := c.loads.Peek(ctx, level)
			if err != nil {
				break
			}
			if level = nextLevel(found.Value, key, base, level, r); level == "" {
				break
			}
		}
		_ = c.loads.Invalidate(ctx, keys...) // the loader has logged it
		keys = nil
	}
}

// tag returns the tag that all responses of the resource have.
func (t target) tag() string {
	host, _ := oneHost(t.host)
	return tag(tagURL, host+normalURI(t.uri))
}

// locations returns the URLs that a response names in Location and Content-Location, if they have
// the same origin as the resource.
func (t target) locations(h http.Header) (urls []string) {
	own, err := url.Parse(t.scheme + "://" + t.host + t.uri)
	if err != nil {
		return nil
	}
	for _, name := range []string{"Location", "Content-Location"} {
		to, err := own.Parse(h.Get(name))
		if err != nil || h.Get(name) == "" || to.Opaque != "" ||
			origin(to.Scheme, to.Host) != origin(t.scheme, t.host) {
			continue
		}
		to.Fragment, to.RawFragment, to.User = "", "", nil
		urls = append(urls, to.String())
	}
	return urls
}

// origin returns scheme, host and port in one spelling (RFC 6454, section 4).
func origin(scheme, host string) string {
	name, port, ok := splitHost(host)
	if !ok {
		return "none: " + host
	}
	switch scheme + port {
	case "http", "http:":
		port = ":80"
	case "https", "https:":
		port = ":443"
	}
	return scheme + "://" + strings.ToLower(name) + port
}

// pass lets the handler answer the request, and writes s to Cache-Status. For a GET or HEAD it
// waits for a turn first. It returns the status of the response, and for a HEAD the header that the
// handler has answered with.
func (c *Cache) pass(
	w http.ResponseWriter, r *http.Request, next http.Handler, s cacheStatus,
) (status int, said http.Header) {
	err := c.counted(r, func(r *http.Request, at *place) {
		p := &passer{w: w, cache: c, status: s, keeps: r.Method == http.MethodHead, place: at}
		defer func() { c.tell(r.Context(), "", p.status.reason) }()
		next.ServeHTTP(p.writer(), r)
		p.finish()
		p.mu.Lock() // a goroutine of the handler may still write
		defer p.mu.Unlock()
		if status = p.code; p.failed {
			status = http.StatusInternalServerError
		}
		said = p.head
	})
	if err != nil {
		status = statusOf(err)
		c.fail(w, r, "", status, err)
	}
	return status, said
}

// untouched waits for a turn, then lets the handler answer a request that may change the connection
// to a protocol other than HTTP.
func (c *Cache) untouched(w http.ResponseWriter, r *http.Request, next http.Handler) {
	err := c.counted(r, func(r *http.Request, at *place) {
		p := &passer{w: w, cache: c, silent: true, place: at}
		next.ServeHTTP(p.writer(), r)
	})
	if err != nil {
		c.fail(w, r, "", statusOf(err), err)
	}
}

// passer is the ResponseWriter of a handler whose response is for its own client only.
type passer struct {
	w      http.ResponseWriter
	cache  *Cache
	status cacheStatus
	silent bool // the passer writes nothing to Cache-Status
	// Called before the client can know of the response, and at its end.
	outdate func(status int, h http.Header, last bool)
	keeps   bool        // pass returns head
	place   *place      // the handler's place
	lost    atomic.Bool // a write to the client has failed

	mu      sync.Mutex // guards the fields below
	code    int
	head    http.Header // the header at WriteHeader, if outdate or keeps is set
	sent    int
	outside bool // the client may have a part of the response
	failed  bool // the handler has called WriteHeader with an error after it had begun to answer
}

// buffered is how many bytes net/http keeps before it sends anything.
const buffered = 2048

func (p *passer) writer() http.ResponseWriter {
	if canHijack(p.w) {
		return hijackablePasser{p}
	}
	return p
}

type hijackablePasser struct{ *passer }

// passerOf returns the passer of a ResponseWriter that pass has given to a handler.
func passerOf(w http.ResponseWriter) *passer {
	if h, ok := w.(hijackablePasser); ok {
		return h.passer
	}
	return w.(*passer)
}

func (h hijackablePasser) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h.expose()
	h.place.leave()
	return http.NewResponseController(h.w).Hijack()
}

func (p *passer) Header() http.Header         { return p.w.Header() }
func (p *passer) Unwrap() http.ResponseWriter { return p.w }
func (p *passer) Flush()                      { _ = p.FlushError() }

func (p *passer) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		p.place.awaits()
		defer p.place.resumes()
		inform(p.w, status)
		return
	}
	p.decided(status)
	p.w.WriteHeader(status)
}

// decided records the status of the response.
func (p *passer) decided(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.code != 0 {
		p.failed = p.failed || contradicts(status, p.code)
		return
	}
	h := p.w.Header()
	p.code = status
	if status == http.StatusSwitchingProtocols || isStream(h) {
		p.place.leave()
	}
	if p.outdate != nil || p.keeps {
		p.head = h.Clone()
	}
	if p.silent {
		return
	}
	if line := p.cache.status(p.status, ""); line != "" {
		h["Cache-Status"] = append(slices.Clip(h["Cache-Status"]), line)
	}
}

// expose calls outdate for the first time. It is called before the client gets any part of the
// response.
func (p *passer) expose() {
	p.decided(http.StatusOK)
	p.mu.Lock()
	first := !p.outside
	p.outside = true
	p.mu.Unlock()
	if first && p.outdate != nil {
		p.outdate(p.code, p.head, false)
	}
}

// writes is called before n bytes are written. It returns the handler's place if the write may have
// to wait for the client, or else nil.
func (p *passer) writes(n int) (waiting *place) {
	p.decided(http.StatusOK)
	p.mu.Lock()
	p.sent += n
	large, first := p.sent > buffered, !p.outside
	p.mu.Unlock()
	if !large {
		return nil
	}
	if first {
		p.expose()
	}
	return p.place
}

func (p *passer) Write(b []byte) (int, error) {
	at := p.writes(len(b))
	at.awaits()
	defer at.resumes()
	n, err := hands(&p.cache.backlog, p.lost.Load(), p.w, b, p.w.Write)
	return n, p.noted(err)
}

// noted records whether a write to the client has failed.
func (p *passer) noted(err error) error {
	if err != nil {
		p.lost.Store(true)
	}
	return err
}

// behind writes to the client, but unlike Write it leaves the handler's place alone. Usually a
// separate goroutine calls it, and the handler keeps its place, because it goes on working. If the
// handler itself waits for the write, the caller of behind has dealt with the place.
func (p *passer) behind(b []byte) error {
	p.writes(len(b))
	_, err := p.w.Write(b)
	return p.noted(err)
}

func (p *passer) WriteString(s string) (int, error) {
	at := p.writes(len(s))
	at.awaits()
	defer at.resumes()
	n, err := hands(&p.cache.backlog, p.lost.Load(), p.w, s, func(s string) (int, error) {
		return io.WriteString(p.w, s)
	})
	return n, p.noted(err)
}

func (p *passer) ReadFrom(src io.Reader) (int64, error) {
	p.expose()
	return p.place.copy(p.w, src)
}

func (p *passer) FlushError() error {
	p.expose()
	p.place.leave()
	return http.NewResponseController(p.w).Flush()
}

// finish is called when the handler has returned. It invalidates, even if expose has already done
// so, because the handler may have changed data after that.
func (p *passer) finish() {
	p.decided(http.StatusOK)
	if p.outdate != nil {
		p.outdate(p.code, p.head, true)
	}
}
