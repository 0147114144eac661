package middleware

import (
	"context"
	"net/http"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// mostTokens is how many tokens of a request are used, because each of them may cost a trip.
const mostTokens = 4

// withToken returns ctx with the first mostTokens tokens that a request brings. It ignores a value
// that is no token. It also ignores a token with a time in the future, so that this token can't
// replace a token that ctx has. If several tokens are left, the latest counts.
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
	for _, text := range texts[:min(len(texts), mostTokens)] {
		if token, err := cacheguard.ParseToken(text); err == nil {
			ctx = cacheguard.NotOlderThan(ctx,
				c.loads.Demanded(cacheguard.NotOlderThan(ctx, token)))
		}
	}
	return ctx
}

// tooOld reports whether a response may be older than the request's token. Two kinds of response
// aren't older: a response that was made for this request, and a response that this process began
// to make after the request came (see cacheguard.Cache.Demanded).
func (x *exchange) tooOld(res cacheguard.Result[*response]) bool {
	return res.Value != nil && res.Status != cacheguard.StatusLoaded &&
		!res.NotOlderThan(x.asked.token)
}

// moreAttempts is how many more runs a request with a token takes part in after the first calls in
// ask. The response of a run may be too old for the token if this or another process had started
// the run before the request came.
const moreAttempts = 2
