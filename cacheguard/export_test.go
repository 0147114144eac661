package cacheguard

import (
	"strconv"
	"time"
)

// Early is the decision of XFetch.
var Early = drawsEarly

// LooksFirst has a cache expect values of keys of which it knows nothing, as if it had found many.
func (c *Cache[V]) LooksFirst() {
	for i := range 100 {
		c.presence.Looked(c.presence.Of("looks first"+strconv.Itoa(i)), true, 0)
	}
}

// Shown is what can be seen of a result.
func (r Result[V]) Shown() Result[V] {
	r.stamp, r.began = 0, 0
	return r
}

// TokenAt is a token that somebody has made up.
func TokenAt(t time.Time) Token { return Token{moment: t.UnixMicro()} }
