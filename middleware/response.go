package middleware

import (
	"net/http"
	"time"
)

// response is what the store has under a key: a response as it may be given to anyone whose request
// it was selected for, or only the knowledge that there is none.
type response struct {
	key      string   // the resource it is of: a key in the store is never trusted without comparing this
	vary     []string // field names, canonical and sorted, that select among the responses of the resource
	selected string   // by what the fields of the request were that it answered, normalised

	unshared bool // for one client only: nothing below but what revalidates it is to be had
	status   int
	header   http.Header // without fields that concern one connection or one client only
	trailer  http.Header
	body     []byte

	age            time.Duration // what its age was when it was stored (RFC 9111, section 4.2.3)
	mustRevalidate bool          // never serve it stale, whatever a request says
	personal       bool          // made for a request that says who asks, not in what vary names
	guessed        bool          // its freshness is that of the options
}
