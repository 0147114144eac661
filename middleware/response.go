package middleware

import (
	"net/http"
	"time"
)

// response is the value that the store has under a key. It is a response for all requests with this
// key. If unshared is set, it records that responses of the resource can't be shared, and the
// other fields are used only to revalidate the response.
type response struct {
	// The key of its resource; a value found in the store is used only if this is equal.
	key string
	// Field names, canonical and sorted, that select among the responses of the resource.
	vary     []string
	selected string // the values that the fields in vary had in its request: see selectedBy

	unshared bool // for one client only; the fields below are used only to revalidate it
	status   int
	header   http.Header // without fields that concern one connection or one client only
	trailer  http.Header
	body     []byte

	age            time.Duration // its age when it was stored (RFC 9111, section 4.2.3)
	mustRevalidate bool          // max-stale and stale-if-error of requests don't apply to it
	// Made for a request that identifies its user by other fields than those in vary.
	personal bool
	guessed  bool // it is fresh only because of the options, and doesn't say public
}
