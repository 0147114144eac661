package middleware

import (
	"context"
	"maps"
	"strconv"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// authorized is the key under which requests with Authorization coalesce. What they get is seldom to be shared, and anyone
// can send that field: under the resource's own key one such request could have everybody run the handler for himself. They
// are answered from what is stored for all, if that is fresh; and what they bring that is for all is stored for all.
func authorized(key string) string { return "a" + keySeparator + key }

// publishTimeout is for how long a request with Authorization waits for a place to store what it brought for all. If there
// is something to wait for, somebody else brings it.
const publishTimeout = 50 * time.Millisecond

// publish stores for all what a request with Authorization has had stored for its like. It is read again under the lease of
// the resource's own key, so that what was purged meanwhile doesn't come back.
func (x *exchange) publish(res cacheguard.Result[*response]) {
	if x.base == x.key || x.level != x.base || res.Status != cacheguard.StatusLoaded || res.Value == nil || res.FreshFor <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), publishTimeout)
	defer cancel()
	c, from := x.cache, x.base
	_, _ = c.loads.GetEntry(ctx, x.key, func(ctx context.Context, _ cacheguard.Result[*response]) (cacheguard.Entry[*response], error) {
		found, err := c.loads.Peek(ctx, from)
		if err != nil || found.Status != cacheguard.StatusHit {
			return cacheguard.Entry[*response]{NoShare: true}, nil // those who wait go on for themselves
		}
		same := *found.Value
		h := maps.Clone(same.header)
		h["Age"] = []string{strconv.Itoa(int((same.age + found.Age + time.Second - 1) / time.Second))}
		now := time.Now()
		v := c.rules.judge(x.r, same.status, h, now, now)
		same.age = v.age
		return c.entry(v, &same), nil
	})
}
