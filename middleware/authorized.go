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

// identities are the fields of a request that say who asks.
var identities = []string{"Authorization", "Cookie", "Proxy-Authorization"}

// identified reports whether a request says who asks, by a TLS client certificate or in a field
// that is not among those that vary names: by those a response is selected, and is nobody else's
// anyway.
func identified(r *http.Request, vary []string) bool {
	for _, name := range identities {
		if r.Header[name] != nil && !slices.Contains(vary, name) {
			return true
		}
	}
	return certified(r)
}

// authorized reports whether a request may have been let in because of who asks (RFC 9111, section
// 3.5, which knows Authorization alone).
func authorized(r *http.Request) bool {
	return r.Header["Authorization"] != nil || r.Header["Proxy-Authorization"] != nil || certified(r)
}

// certified reports whether a client has shown a certificate, verified or not: that is the
// handler's to judge. No field of Vary selects by it.
func certified(r *http.Request) bool { return r.TLS != nil && len(r.TLS.PeerCertificates) > 0 }

// suits reports whether the response may be given to a request, as far as that says who asks: what
// is fresh only because the options say so was made for nobody in particular, and is for such
// requests.
func (res *response) suits(r *http.Request) bool {
	return !res.guessed || !identified(r, res.vary)
}

// identifiedKey is the key under which requests with Authorization or Cookie coalesce. What they
// get is often not to be shared, and anyone can send these fields: under the resource's own key one
// such request could have everybody run the handler for himself. They are answered from what is
// stored for all, if that is fresh; and what they bring that is for all is stored for all.
func identifiedKey(key string) string { return "a" + keySeparator + key }

// publishTimeout is for how long a request with Authorization or Cookie waits for a place to store
// what it brought for all. If there is something to wait for, somebody else brings it.
const publishTimeout = 50 * time.Millisecond

// publish stores for all what a request with Authorization or Cookie has had stored for its like.
// It is read again under the lease of the resource's own key, so that what was purged meanwhile
// doesn't come back.
//
// A request whose client has left doesn't come here: nobody knows then when its load is stored.
// Others run the handler once, as they would have without it.
func (x *exchange) publish(res cacheguard.Result[*response]) {
	if x.base == x.key || x.level != x.base || res.Status != cacheguard.StatusLoaded || res.Value == nil || res.FreshFor <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), publishTimeout)
	defer cancel()
	c, from := x.cache, x.base
	ask := c.loads.GetEntry
	if x.forced { // what is stored for all is fresh, and older
		ask = c.loads.RefreshEntry
	}
	_, _ = ask(ctx, x.key, func(ctx context.Context, prev cacheguard.Result[*response]) (cacheguard.Entry[*response], error) {
		found, err := c.loads.Peek(ctx, from)
		if err != nil || found.Status != cacheguard.StatusHit {
			return cacheguard.Entry[*response]{NoShare: true, LeaveStored: true}, nil // those who wait go on for themselves
		}
		same := *found.Value
		v := c.rejudged(x.r, &same, same.age+found.Age)
		if !v.share || v.provoked && prev.Value != nil && !prev.Value.unshared && prev.FreshFor > 0 {
			return cacheguard.Entry[*response]{NoShare: true, LeaveStored: true}, nil
		}
		same.age, same.guessed = v.age, v.guessed
		return c.entry(v, &same), nil
	})
}

// rejudged is the verdict on a response that is stored elsewhere and so old by now. Age has whole
// seconds: the rest is the time that it took to come, or what is fresh for a second would be stale
// at once.
func (c *Cache) rejudged(r *http.Request, res *response, age time.Duration) verdict {
	h := maps.Clone(res.header)
	h["Age"] = []string{strconv.Itoa(int(age / time.Second))}
	now := time.Now()
	return c.rules.judge(r, res.status, h, now.Add(-(age % time.Second)), now)
}
