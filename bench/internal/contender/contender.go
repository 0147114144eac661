// Package contender has the ways to protect an expensive load that the benchmark compares: nothing,
// a flight in the process, the stages of the example's way to a distributed lock, and cacheguard
// with its options. What other libraries do is in the module bench/peers, which adds its own.
//
// All get the same client, the same lifetimes and the same origin; what a contender can't be told,
// its Note says.
package contender

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Rig is what a contender is built on in a replica. All of a run's replicas have the same, but for
// the client.
type Rig struct {
	Redis *redis.Client

	// Load asks the origin. found is false if there is nothing of that name.
	Load func(ctx context.Context, key string) (value string, found bool, err error)

	// Renew is Load by a contender that has a value already, which the new one replaces.
	Renew func(ctx context.Context, key, old string) (value string, found bool, err error)

	Locks string // where the locks of a contender are kept that has them elsewhere

	TTL      time.Duration // of a value
	LockTTL  time.Duration // of a lock or lease, where that can be chosen
	PollTime time.Duration // between two tries, of those who poll
	Backoff  time.Duration // after failed loads, where that can be chosen; 0: by default
}

// Protection is a contender, ready to be used in one replica. It is safe for concurrent use.
type Protection interface {
	// Get returns the value of a key, or that there is none.
	Get(ctx context.Context, key string) (value string, found bool, err error)

	// Invalidate is called after the origin's value has changed.
	Invalidate(ctx context.Context, key string) error

	Close() error
}

// Many is a Protection that has values of many keys in one trip.
type Many interface {
	// GetMany returns the values of keys that are all cached, by key.
	GetMany(ctx context.Context, keys []string) (map[string]string, error)
}

// Dated is a Protection that may answer with a value whose time is over, and says so.
type Dated interface {
	GetDated(ctx context.Context, key string) (value string, stale bool, err error)
}

// Contender is one of those that are compared.
type Contender struct {
	Name string
	What string // it is, in a few words
	Note string // what is to be known when it is compared: a version, a setting, what is unfair

	Better string // what it does better than cacheguard, where it isn't this module's

	OwnClient bool // it asks Redis with a client of its own, whose trips nobody counts

	Open func(ctx context.Context, r Rig) (Protection, error)
}

// All are those of this module.
func All() []Contender { return slices.Concat(plain, stages(), guarded, routes) }

// Names are those of some contenders.
func Names(of []Contender) (names []string) {
	for _, c := range of {
		names = append(names, c.Name)
	}
	return names
}

// Named returns those of these names, out of some.
func Named(of []Contender, names ...string) ([]Contender, error) {
	var chosen []Contender
	for _, name := range names {
		i := slices.IndexFunc(of, func(c Contender) bool { return c.Name == name })
		if i < 0 {
			return nil, errors.New("there is no contender " + name)
		}
		chosen = append(chosen, of[i])
	}
	return chosen, nil
}

// Missing is how the plain ways cache that there is nothing.
const Missing = "\x00missing"
