package cacheguard

import "fmt"

// Reason is the reason why package middleware didn't store a response. There is a fixed set of
// reasons, so that metrics can count each one; later releases may add reasons. In the repository,
// docs/http.md explains each reason and its remedy, under "Why is my page not stored?".
type Reason uint8

const (
	// The request is a HEAD, whose response is never stored.
	ReasonMethod Reason = iota + 1
	// The request is of a kind that caches don't answer, for instance with a body, with If-Match or
	// with an invalid Host; or the cache is closed.
	ReasonBypass
	// The request is for a part of a response that isn't stored.
	ReasonRange
	ReasonRequestNoStore // the request says no-store
	// The handler ran for this request alone: the request has waited for WaitTimeout, or for a
	// response that was not for it. Or the load ended before the handler answered, or the status is
	// 101.
	ReasonAlone
	ReasonStatus // the response's status can't be stored
	// The response says must-understand, and the cache doesn't understand its status.
	ReasonMustUnderstand
	ReasonNoStore   // the response says no-store
	ReasonPrivate   // the response says private
	ReasonSetCookie // the response has Set-Cookie
	ReasonVaryAll   // the response says Vary: *
	// The request has Authorization or a certificate, and the response doesn't say that it is for
	// others.
	ReasonAuthorization
	// The request has Cookie, and the response doesn't say that it is for others.
	ReasonCookie
	ReasonNoCache // the response says no-cache and has no validator
	// Neither the response nor an option says how long it is fresh.
	ReasonNoFreshness
	// The response was stale when the handler returned it, and has no validator.
	ReasonStale
	ReasonTooLarge    // the body is larger than MaxBody
	ReasonFlushed     // the handler flushed the response before its end
	ReasonEventStream // the response is an event stream
	ReasonTakenOver   // the handler took over the connection
	// The handler panicked, failed after it had begun to write, or wrote less than its
	// Content-Length.
	ReasonIncomplete
	ReasonTags     // the response has too many tags
	ReasonVariants // the URL has too many variants
	ReasonStore    // the store could not be used
	ReasonPurged   // the URL was purged while the handler ran
	ReasonSwitch   // the cache's Switch was off or in shadow

	// Reasons is one more than the last reason, for arrays that are indexed by Reason.
	Reasons
)

var reasonNames = [...]string{
	ReasonMethod: "method", ReasonBypass: "bypass", ReasonRange: "range",
	ReasonRequestNoStore: "request: no-store",
	ReasonAlone:          "alone", ReasonStatus: "status", ReasonMustUnderstand: "must-understand",
	ReasonNoStore: "no-store",
	ReasonPrivate: "private", ReasonSetCookie: "Set-Cookie", ReasonVaryAll: "Vary: *",
	ReasonAuthorization: "Authorization",
	ReasonCookie:        "Cookie", ReasonNoCache: "no-cache", ReasonNoFreshness: "no freshness",
	ReasonStale:    "stale",
	ReasonTooLarge: "too large", ReasonFlushed: "flushed", ReasonEventStream: "event stream",
	ReasonTakenOver:  "taken over",
	ReasonIncomplete: "incomplete", ReasonTags: "too many tags",
	ReasonVariants: "too many variants", ReasonStore: "store",
	ReasonPurged: "purged", ReasonSwitch: "switch",
}

// String returns the reason in a few words. The parameter detail of Cache-Status uses the same
// words. For the zero Reason it returns "".
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}
