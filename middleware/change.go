package middleware

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
)

// change has the handler answer a request of an unsafe method, and then removes what is out of date by it: the resource
// itself, and those that Location and Content-Location name on the same host (RFC 9111, section 4.4).
func (c *Cache) change(w http.ResponseWriter, r *http.Request, next http.Handler) {
	p := &passer{w: w, cache: c, status: cacheStatus{fwd: "method"}}
	if c.keys.ok(r) {
		p.before = func(status int, h http.Header) { c.outdate(r, status, h) }
	}
	next.ServeHTTP(p.writer(), r)
	p.finish()
}

// outdate removes what a response to an unsafe request says is out of date.
func (c *Cache) outdate(r *http.Request, status int, h http.Header) {
	if status < 200 || status > 399 {
		return
	}
	own, err := url.Parse(c.keys.url(r))
	if err != nil {
		return
	}
	urls := []string{own.String()}
	for _, name := range []string{"Location", "Content-Location"} {
		to, err := own.Parse(h.Get(name))
		if err != nil || h.Get(name) == "" {
			continue
		}
		if host, ok := hostOf(to.Scheme, to.Host); ok && host == own.Host && to.Scheme == own.Scheme {
			to.Fragment, to.User, to.Host = "", nil, host
			urls = append(urls, to.String())
		}
	}
	_ = c.Purge(r.Context(), urls...) // the loader has logged it
}

// pass has the handler answer, and says so. It returns the status of the response.
func (c *Cache) pass(w http.ResponseWriter, r *http.Request, next http.Handler, s cacheStatus) int {
	p := &passer{w: w, cache: c, status: s}
	next.ServeHTTP(p.writer(), r)
	p.finish()
	return p.code
}

// passer is the ResponseWriter of a handler whose response is its client's alone.
type passer struct {
	w      http.ResponseWriter
	cache  *Cache
	status cacheStatus
	before func(status int, h http.Header) // called before the client can know of the response

	mu      sync.Mutex // guards what follows
	code    int
	head    http.Header // what before gets
	sent    int
	outside bool // the client may have a part of the response
}

// buffered is how much net/http keeps before it sends anything.
const buffered = 2048

func (p *passer) writer() http.ResponseWriter {
	if canHijack(p.w) {
		return hijackablePasser{p}
	}
	return p
}

type hijackablePasser struct{ *passer }

func (h hijackablePasser) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h.expose()
	return http.NewResponseController(h.w).Hijack()
}

func (p *passer) Header() http.Header         { return p.w.Header() }
func (p *passer) Unwrap() http.ResponseWriter { return p.w }
func (p *passer) Flush()                      { _ = p.FlushError() }

func (p *passer) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		p.decided(status)
	}
	p.w.WriteHeader(status)
}

// decided notes what the response is.
func (p *passer) decided(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.code != 0 {
		return
	}
	h := p.w.Header()
	p.code = status
	if p.before != nil {
		p.head = http.Header{"Location": slices.Clone(h["Location"]), "Content-Location": slices.Clone(h["Content-Location"])}
	}
	if line := p.cache.status(p.status, ""); line != "" {
		h["Cache-Status"] = append(slices.Clip(h["Cache-Status"]), line)
	}
}

// expose is called before the client gets a part of the response.
func (p *passer) expose() {
	p.decided(http.StatusOK)
	p.mu.Lock()
	first := !p.outside
	p.outside = true
	p.mu.Unlock()
	if first && p.before != nil {
		p.before(p.code, p.head)
	}
}

func (p *passer) wrote(n int) {
	p.decided(http.StatusOK)
	p.mu.Lock()
	p.sent += n
	large := p.sent > buffered && !p.outside
	p.mu.Unlock()
	if large {
		p.expose()
	}
}

func (p *passer) Write(b []byte) (int, error) {
	p.wrote(len(b))
	return p.w.Write(b)
}

func (p *passer) WriteString(s string) (int, error) {
	p.wrote(len(s))
	return io.WriteString(p.w, s)
}

func (p *passer) ReadFrom(src io.Reader) (int64, error) {
	p.expose()
	return io.Copy(p.w, src)
}

func (p *passer) FlushError() error {
	p.expose()
	return http.NewResponseController(p.w).Flush()
}

// finish is called when the handler has returned. What it wrote last to its origin may be newer than what was exposed.
func (p *passer) finish() {
	p.decided(http.StatusOK)
	if p.before != nil {
		p.before(p.code, p.head)
	}
}
