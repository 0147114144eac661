package middleware

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// identities are the request fields that identify a user.
var identities = []string{"Authorization", "Cookie", "Proxy-Authorization"}

// identified reports whether a request identifies its user, by a TLS client certificate or by one
// of identities. It ignores the fields in vary, because a response that varies by a field is given
// only to requests with the same value.
func identified(r *http.Request, vary []string) bool {
	for _, name := range identities {
		if r.Header[name] != nil && !slices.Contains(vary, name) {
			return true
		}
	}
	return certified(r)
}

// authorized reports whether a request has credentials that may have been needed to get the
// response. RFC 9111, section 3.5, mentions only Authorization.
func authorized(r *http.Request) bool {
	return r.Header["Authorization"] != nil || r.Header["Proxy-Authorization"] != nil ||
		certified(r)
}

// certified reports whether a client has sent a certificate. It doesn't matter whether the
// certificate is verified, because only the handler knows whether it trusts the certificate. No
// field in Vary can select a response by certificate.
func certified(r *http.Request) bool { return r.TLS != nil && len(r.TLS.PeerCertificates) > 0 }

// suits reports whether the response may be given to this request. A response that is fresh only
// because of the options is given only to requests that don't identify their user, because nobody
// has declared that it is the same for all users.
func (res *response) suits(r *http.Request) bool {
	return !res.guessed || !identified(r, res.vary)
}

// identifiedKey is the key under which requests that identify their user wait for one another. The
// responses to these requests often can't be shared, and anyone can send a Cookie. If these
// requests waited under the resource's own key, one of them could make all other requests run the
// handler themselves. Requests that identify their user are answered with the response that is
// stored for all, if it is fresh, or within its stale-while-revalidate window. If the response to
// such a request may be shared with all, it is stored for all.
func identifiedKey(key string) string { return "a" + keySeparator + key }

// publishTimeout is how long a request waits for the lease that it needs to store a response for
// all: see publish and completed. If another request has that lease, that request stores a response
// for all.
const publishTimeout = 50 * time.Millisecond

// publish stores for all requests the response to a request that identifies its user. The response
// is already stored under identifiedKey. publish reads it again while it holds the lease of the
// resource's own key, so that a response that was purged meanwhile isn't stored again.
//
// If the request's client has left, publish does nothing, because nobody knows then when the
// response will be stored. Other requests then run the handler once, as they would without this
// request. publish also does nothing if the request has gone on to the key of another variant.
func (x *exchange) publish(res cacheguard.Result[*response]) {
	if x.base == x.key || x.level != x.base || res.Status != cacheguard.StatusLoaded ||
		res.Value == nil || res.FreshFor <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), publishTimeout)
	defer cancel()
	c, from := x.cache, x.base
	ask := c.loads.GetEntry
	if x.forced { // the response stored for all is fresh, but older than this one
		ask = c.loads.RefreshEntry
	}
	_, _ = ask(ctx, x.key, func(
		ctx context.Context, prev cacheguard.Result[*response],
	) (cacheguard.Entry[*response], error) {
		found, err := c.loads.Peek(ctx, from)
		if err != nil || found.Status != cacheguard.StatusHit {
			// The requests that wait run the handler themselves.
			return cacheguard.Entry[*response]{NoShare: true, LeaveStored: true}, nil
		}
		same := *found.Value
		v := c.rejudged(x.r, &same, same.age+found.Age)
		if !v.share ||
			v.provoked && prev.Value != nil && !prev.Value.unshared && prev.FreshFor > 0 {
			return cacheguard.Entry[*response]{NoShare: true, LeaveStored: true}, nil
		}
		same.age, same.guessed = v.age, v.guessed
		return c.entry(v, &same).NotNewerThan(found), nil
	})
}

// rejudged returns the verdict on a response that is stored under another key and has this age. The
// field Age has whole seconds. So rejudged passes the remaining fraction of a second to judge as
// the time that the response took to arrive. Without the fraction, a response that is fresh for one
// second would be stale at once.
func (c *Cache) rejudged(r *http.Request, res *response, age time.Duration) verdict {
	h := maps.Clone(res.header)
	h["Age"] = []string{strconv.Itoa(int(age / time.Second))}
	now := time.Now()
	return c.rules.judge(r, res.status, h, now.Add(-(age % time.Second)), now)
}
