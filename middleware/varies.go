package middleware

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

// varies is by which fields the responses of resources are selected, for the process-local tier.
// The first response of a resource says so, and may be stale while others are fresh: then each hit
// would ask the store for it.
//
// What is found by a Vary that is out of date has been selected for the request all the same, and
// is as fresh as all in the tier. It is safe for concurrent use.
type varies struct {
	mu     sync.Mutex // guards what follows
	digest digester
	of     map[digest]varied // by the key of the first response
}

type varied struct {
	names []string
	until time.Time
}

const mostVaried = 4096

// learn takes note of what a stale response says.
func (v *varies) learn(base string, res *response, during time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil || len(v.of) >= mostVaried {
		v.of = make(map[digest]varied)
	}
	names := make([]string, len(res.vary))
	for i, name := range res.vary {
		names[i] = strings.Clone(name) // it is a part of all texts of the response
	}
	v.of[v.digest.of(base)] = varied{names, time.Now().Add(during)}
}

// level is the key of the response that is selected by these fields of a request, or "" if nobody
// knows.
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

// learns takes note of by which fields a stale response was selected, where a request looks first.
func (c *Cache) learns(level string, stale *response) {
	if c.opts.LocalBytes > 0 && len(stale.vary) > 0 {
		c.varies.learn(level, stale, c.opts.LocalTTL)
	}
}
