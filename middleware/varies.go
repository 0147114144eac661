package middleware

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

// varies remembers, for the process-local tier, which request fields select among the responses of
// a resource. The Vary of the resource's first response names these fields. The first response may
// be stale while other variants are fresh. Without varies, each hit of another variant would have
// to read the first response from the store.
//
// If the remembered Vary is outdated, the response that it leads to still matches the request, and
// is as fresh as any response in the tier. A varies is safe for concurrent use.
type varies struct {
	mu     sync.Mutex // guards the fields below
	digest digester
	of     map[digest]varied // by the key of the first response
}

type varied struct {
	names []string
	until time.Time
}

const mostVaried = 4096

// learn remembers the Vary of a stale response.
func (v *varies) learn(base string, res *response, during time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil || len(v.of) >= mostVaried {
		v.of = make(map[digest]varied)
	}
	names := make([]string, len(res.vary))
	for i, name := range res.vary {
		// The name may be part of one string with all texts of the response. The clone doesn't keep
		// that string in memory.
		names[i] = strings.Clone(name)
	}
	v.of[v.digest.of(base)] = varied{names, time.Now().Add(during)}
}

// level returns the key of the response that is selected by these fields of a request, or "" if it
// isn't known.
func (v *varies) level(base string, req http.Header) string {
	v.mu.Lock()
	if len(v.of) == 0 {
		v.mu.Unlock()
		return ""
	}
	known := v.of[v.digest.of(base)]
	v.mu.Unlock()
	if known.names == nil || !time.Now().Before(known.until) {
		return ""
	}
	return variantKey(base, known.names, selectedBy(known.names, req))
}

// If the cache has a local tier, learns remembers which request fields the Vary of a stale response
// names. level is the key of the resource's first response. A request looks up this key before the
// keys of variants.
func (c *Cache) learns(level string, stale *response) {
	if c.opts.LocalBytes > 0 && len(stale.vary) > 0 {
		c.varies.learn(level, stale, c.opts.LocalTTL)
	}
}
