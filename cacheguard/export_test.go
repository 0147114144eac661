package cacheguard

import "strconv"

// Early is the decision of XFetch.
var Early = drawsEarly

// LooksFirst has a cache expect values of keys of which it knows nothing, as if it had found many.
func (c *Cache[V]) LooksFirst() {
	for i := range 100 {
		c.presence.Looked(c.presence.Of("looks first"+strconv.Itoa(i)), true, 0)
	}
}
