package cacheguard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// clockSlack is how far in the future a value may have been made without counting as nonsense: processes estimate the
// store's clock, each with an error of up to half a round trip.
const clockSlack = 250 * time.Millisecond

// age returns how old a value is and whether it is fresh. An age that can't be (the clock was set, or the store fell
// back to another machine with another clock) is stale, not fresh for ever.
func age(h frame.Header, now time.Time) (age time.Duration, fresh bool) {
	age = now.Sub(h.Created)
	switch {
	case age < -clockSlack, age > h.Hard:
		return age, false
	case age < 0:
		age = 0
	}
	return age, age < h.Soft
}

// jittered shortens a TTL by a random share of up to jitter.
func jittered(ttl time.Duration, jitter float64) time.Duration {
	ttl -= time.Duration(float64(ttl) * jitter * rand.Float64())
	return max(ttl.Truncate(time.Millisecond), minTTL)
}

// found is what stands in the store under a key.
type found[V any] struct {
	res     Result[V] // StatusMiss, StatusHit or StatusStale
	load    ID        // the load that made it
	id      []byte    // of whatever stands there, for LeaseAsk.Seen
	corrupt error     // why it is no value
}

// open makes a value of a frame. It never panics and never returns an error: what is not a value is a miss.
func (c *Cache[V]) open(f []byte) (got found[V]) {
	if f == nil {
		return got
	}
	got.id = frame.ID(f)
	h, body, err := frame.Parse(f)
	if err == nil && h.Codec != c.codec && !h.Null {
		err = errors.New("frame was written by another codec")
	}
	if err != nil {
		got.corrupt = err
		return got
	}
	if !h.Null {
		if got.res.Value, got.corrupt = c.decode(body); got.corrupt != nil {
			return found[V]{id: got.id, corrupt: got.corrupt}
		}
	}
	got.load = h.ID
	got.res.NotFound = h.Null
	var fresh bool
	if got.res.Age, fresh = age(h, c.store.Now()); fresh {
		got.res.Status = StatusHit
	} else {
		got.res.Status = StatusStale
	}
	got.res.FreshFor = h.Soft - got.res.Age
	return got
}

func (c *Cache[V]) decode(body []byte) (v V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("codec panicked: %v", p)
		}
	}()
	v, err = c.opts.Codec.Decode(body)
	return v, err
}
