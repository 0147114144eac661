package middleware

import (
	"net/http"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// token is the token that a request brings, or the zero one. What is none is ignored, as a cookie of another time would be.
func (c *Cache) token(r *http.Request) cacheguard.Token {
	text := ""
	if name := c.opts.TokenField; name != "" {
		text = r.Header.Get(name)
	}
	if name := c.opts.TokenCookie; name != "" && text == "" {
		if cookie, err := r.Cookie(name); err == nil {
			text = cookie.Value
		}
	}
	token, err := cacheguard.ParseToken(text)
	if err != nil {
		return cacheguard.Token{}
	}
	return token
}

// tooOld reports whether a response may be from before the request's token. What was made for the request itself never is.
func (x *exchange) tooOld(res cacheguard.Result[*response]) bool {
	return res.Value != nil && res.Status != cacheguard.StatusLoaded && !res.NotOlderThan(x.asked.token)
}

// moreAttempts is how often a request with a token takes part in another run, beyond the first: a run of another process that was
// under way when it came, and one of this process that it came too late for, can bring what is too old.
const moreAttempts = 2
