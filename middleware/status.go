package middleware

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// cacheStatus says what this cache did with a request (RFC 9211).
type cacheStatus struct {
	hit       bool
	fwd       string // why the handler was asked: a token of section 2.2
	fwdStatus int    // the status of the handler's response, or 0 to leave it out
	ttl       time.Duration
	hasTTL    bool
	stored    bool
	collapsed bool
	key       string
	detail    string
	reason    cacheguard.Reason // why the response is not stored; written as detail
}

// line returns the member of the Cache-Status field (RFC 9211, section 2) for the cache of this
// name.
func (s cacheStatus) line(name string) string {
	b := make([]byte, 0, 96) // b is on the stack, so a plain hit allocates only its string
	b = appendTokenOrString(b, name)
	if s.hit {
		b = append(b, "; hit"...)
	} else if s.fwd != "" { // never both (section 2.2)
		b = append(b, "; fwd="...)
		b = append(b, s.fwd...)
	}
	if s.fwdStatus != 0 {
		b = append(b, "; fwd-status="...)
		b = strconv.AppendInt(b, int64(s.fwdStatus), 10)
	}
	if s.hasTTL {
		b = append(b, "; ttl="...)
		b = strconv.AppendInt(b, floorSeconds(s.ttl), 10)
	}
	if s.stored {
		b = append(b, "; stored"...)
	}
	if s.collapsed {
		b = append(b, "; collapsed"...)
	}
	if s.key != "" {
		b = append(b, "; key="...)
		b = appendString(b, s.key)
	}
	if s.detail != "" {
		b = append(b, "; detail="...)
		b = appendTokenOrString(b, s.detail)
	} else if s.reason != 0 {
		b = append(b, "; detail="...)
		b = appendTokenOrString(b, s.reason.String())
	}
	return string(b)
}

// floorSeconds rounds down, so that a response that has been stale for half a second has a ttl of
// -1 and not 0.
func floorSeconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second < 0 {
		n--
	}
	return n
}

// appendTokenOrString appends s as a Token of RFC 9651 if it is one, or else as a String.
func appendTokenOrString(b []byte, s string) []byte {
	if isToken(s) && (s[0] == '*' || s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z') {
		return append(b, s...)
	}
	return appendString(b, s)
}

// appendString appends a String of RFC 9651, which has printable ASCII only: other bytes are
// percent-encoded.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"', c == '\\':
			b = append(b, '\\', c)
		case c < ' ', c > '~':
			b = append(b, '%', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// reasons has the reason for each word that a verdict uses.
var reasons = func() map[string]cacheguard.Reason {
	all := make(map[string]cacheguard.Reason)
	for r := cacheguard.Reason(1); r < cacheguard.Reasons; r++ {
		all[r.String()] = r
	}
	return all
}()

// unstored returns the reason why a response with this verdict is not stored, or 0 if it is stored.
func (v verdict) unstored() cacheguard.Reason {
	if v.store {
		return 0
	}
	return reasons[v.why]
}

// unstorable returns the reason why a response can't be stored although its verdict allows it. It
// returns 0 if the response can be stored, as far as its header tells.
func (u *run) unstorable(v verdict, res *response) cacheguard.Reason {
	if !v.share && u.leaves(v) {
		return reasons[v.why]
	}
	if u.found.Degraded {
		if u.cache.opts.Switch.Mode() != cacheguard.ModeOn {
			return cacheguard.ReasonSwitch
		}
		return cacheguard.ReasonStore
	}
	if _, ok := surrogateTags(res.header); !ok {
		return cacheguard.ReasonTags
	}
	if !u.cache.admits(res, v) {
		return cacheguard.ReasonVariants
	}
	return 0
}

// reasonAlone returns the reason why a response that the handler makes for this request alone is
// not stored.
func (x *exchange) reasonAlone(why string) cacheguard.Reason {
	switch {
	case x.asked.noStore:
		return cacheguard.ReasonRequestNoStore
	case x.r.Method == http.MethodHead:
		return cacheguard.ReasonMethod
	case why == "bypass":
		return cacheguard.ReasonBypass
	case x.r.Header["Range"] != nil:
		return cacheguard.ReasonRange
	}
	return cacheguard.ReasonAlone
}

// tell tells the observer that a response is not stored.
func (c *Cache) tell(ctx context.Context, key string, why cacheguard.Reason) {
	if why == 0 || c.opts.Observer == nil {
		return
	}
	defer func() { _ = recover() }() // an observer must not be able to kill a request
	c.opts.Observer.Observe(ctx,
		cacheguard.Event{Cache: c.opts.Name, Key: key, Kind: cacheguard.EventUnstored, Reason: why})
}
