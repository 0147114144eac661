// Package contender contains the ways to protect an expensive load that the benchmark compares: no
// protection, a flight in the process, the example's stages on the way to a distributed lock, and
// cacheguard with its options. The module bench/peers adds contenders that use other libraries.
//
// All contenders get the same client, the same lifetimes and the same origin. If a contender
// doesn't support one of these settings, its Note says so.
package contender

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Rig contains the parts from which a contender is built in a replica. All replicas of a run have
// the same Rig, except for the client.
type Rig struct {
	Redis *redis.Client

	// Load asks the origin. found is false if the origin has no value with this name.
	Load func(ctx context.Context, key string) (value string, found bool, err error)

	// Renew is like Load, for a contender that already has a value. The new value replaces it.
	Renew func(ctx context.Context, key, old string) (value string, found bool, err error)

	Locks string // the address of the locks, for a contender that keeps them in another system

	TTL      time.Duration // of a value
	LockTTL  time.Duration // of a lock or lease, if it can be chosen
	PollTime time.Duration // between two tries of contenders that poll
	Backoff  time.Duration // after failed loads, if it can be chosen; 0: the contender's default
}

// Protection is a contender, ready to be used in one replica. It is safe for concurrent use.
type Protection interface {
	// Get returns the value of a key. found is false if there is none.
	Get(ctx context.Context, key string) (value string, found bool, err error)

	// Invalidate is called after the origin's value has changed.
	Invalidate(ctx context.Context, key string) error

	Close() error
}

// Many is a Protection that can return values of many keys in one trip.
type Many interface {
	// GetMany returns the values of keys that are all cached, by key.
	GetMany(ctx context.Context, keys []string) (map[string]string, error)
}

// Dated is a Protection that may return a value whose time is over, and reports that it is stale.
type Dated interface {
	GetDated(ctx context.Context, key string) (value string, stale bool, err error)
}

// Contender is one of the ways that are compared.
type Contender struct {
	Name string
	What string // a description in a few words
	Note string // facts for the comparison: a version, a setting, an unfairness

	Better string // for a contender of another library: what it does better than cacheguard

	OwnClient bool // it uses its own client for Redis, whose trips aren't counted

	Open func(ctx context.Context, r Rig) (Protection, error)
}

// All returns the contenders of this module.
func All() []Contender { return slices.Concat(plain, stages(), guarded, routes) }

// Names returns the names of some contenders.
func Names(of []Contender) (names []string) {
	for _, c := range of {
		names = append(names, c.Name)
	}
	return names
}

// Named returns the contenders with these names.
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

// Missing is the value that plain contenders cache if the origin has none.
const Missing = "\x00missing"
