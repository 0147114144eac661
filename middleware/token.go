package middleware

import (
	"context"
	"net/http"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// withToken returns ctx with the tokens that a request brings, of which the latest counts. What is
// none is ignored, as a cookie of another time would be.
func (c *Cache) withToken(ctx context.Context, r *http.Request) context.Context {
	var texts []string
	if name := c.opts.TokenField; name != "" {
		texts = r.Header.Values(name)
	}
	if name := c.opts.TokenCookie; name != "" {
		for _, cookie := range r.CookiesNamed(name) {
			texts = append(texts[:len(texts):len(texts)], cookie.Value)
		}
	}
	for _, text := range texts {
		if token, err := cacheguard.ParseToken(text); err == nil {
			ctx = cacheguard.NotOlderThan(ctx, token)
		}
	}
	return ctx
}

// tooOld reports whether a response may be from before the request's token. What was made for the
// request itself never is, nor what has been made in this process since the request came: see
// cacheguard.Cache.Demanded.
func (x *exchange) tooOld(res cacheguard.Result[*response]) bool {
	return res.Value != nil && res.Status != cacheguard.StatusLoaded && !res.NotOlderThan(x.asked.token)
}

// moreAttempts is how often a request with a token takes part in another run, beyond the first: a
// run of another process that was under way when it came, and one of this process that it came too
// late for, can bring what is too old.
const moreAttempts = 2
