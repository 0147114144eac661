package cacheguard

import "fmt"

// Reason says why a response of package middleware is not stored. The set is closed, so that each
// can be counted; new ones may be added. What to do about each is in the documentation of that
// package.
type Reason uint8

const (
	ReasonMethod         Reason = iota + 1 // its request is neither GET nor a POST that answers for GET
	ReasonBypass                           // its request is one that caches don't answer: with a body, with If-Match, without a URL
	ReasonRange                            // its request is for a part of what isn't stored
	ReasonRequestNoStore                   // its request says no-store
	ReasonAlone                            // its request has waited too long, or for a response that was not for it
	ReasonStatus                           // its status
	ReasonMustUnderstand                   // must-understand, with a status that is not understood
	ReasonNoStore                          // no-store
	ReasonPrivate                          // private
	ReasonSetCookie                        // Set-Cookie
	ReasonVaryAll                          // Vary: *
	ReasonAuthorization                    // its request has Authorization or a certificate, and it doesn't say that it is for others
	ReasonCookie                           // its request has Cookie, and it doesn't say that it is for others
	ReasonNoCache                          // no-cache, and no validator
	ReasonNoFreshness                      // it doesn't say for how long, and no option does
	ReasonStale                            // it was stale when it came, and has no validator
	ReasonTooLarge                         // its body is above MaxBody
	ReasonFlushed                          // it was flushed before its end
	ReasonEventStream                      // it is an event stream
	ReasonTakenOver                        // its connection was taken over
	ReasonIncomplete                       // its handler panicked, failed after it had begun to write, or wrote less than its Content-Length
	ReasonTags                             // it has too many tags
	ReasonVariants                         // its URL has too many variants
	ReasonStore                            // the store could not be used
	ReasonPurged                           // it was purged while its handler ran
	ReasonSwitch                           // its cache was switched off, or in shadow

	// Reasons is one more than the last of them.
	Reasons
)

var reasonNames = [...]string{
	ReasonMethod: "method", ReasonBypass: "bypass", ReasonRange: "range", ReasonRequestNoStore: "request: no-store",
	ReasonAlone: "alone", ReasonStatus: "status", ReasonMustUnderstand: "must-understand", ReasonNoStore: "no-store",
	ReasonPrivate: "private", ReasonSetCookie: "Set-Cookie", ReasonVaryAll: "Vary: *", ReasonAuthorization: "Authorization",
	ReasonCookie: "Cookie", ReasonNoCache: "no-cache", ReasonNoFreshness: "no freshness", ReasonStale: "stale",
	ReasonTooLarge: "too large", ReasonFlushed: "flushed", ReasonEventStream: "event stream", ReasonTakenOver: "taken over",
	ReasonIncomplete: "incomplete", ReasonTags: "too many tags", ReasonVariants: "too many variants", ReasonStore: "store",
	ReasonPurged: "purged", ReasonSwitch: "switch",
}

// String is the reason in a word or two, as Cache-Status has it in its parameter detail; "" for
// none.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}
