package cacheguard

import "time"

// Early is the decision of XFetch.
var Early = drawsEarly

// TokenAt returns a made-up token.
func TokenAt(t time.Time) Token { return Token{moment: t.UnixMicro()} }

// Receive handles a message as if the store had sent it.
func (c *Cache[V]) Receive(m Message) { c.received(m) }

// WhenTold calls f when the calls that wait for messages about the key are told one, before Receive
// goes on.
func (c *Cache[V]) WhenTold(key string, f func()) (stop func()) {
	return c.waits.Watch(keyID(key), func(uint32, Message) { f() }).Stop
}

// OpenFlights is the number of flights of reads that a new call could join.
func (c *Cache[V]) OpenFlights() int {
	open, _ := c.flights[reads].Count()
	return open
}
