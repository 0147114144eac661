package stage

import (
	"context"
	"database/sql"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
)

// Point is a place in a protection's code.
type Point string

// The points, in the order in which a request comes by.
const (
	Hit       Point = "hit"       // the cached value is there
	Miss      Point = "miss"      // it is not
	Try       Point = "try"       // asks for the lock
	Between   Point = "between"   // between the two commands that make the lock
	Acquired  Point = "acquired"  // has the lock
	Wait      Point = "wait"      // another has it: waits
	Woken     Point = "woken"     // looks again
	Load      Point = "load"      // asks the origin
	Loaded    Point = "loaded"    // has its answer
	Fill      Point = "fill"      // writes it to the cache
	Filled    Point = "filled"    // has written it
	Unlock    Point = "unlock"    // gives the lock back
	Compared  Point = "compared"  // between the two commands that give it back
	Unlocked  Point = "unlocked"  // has deleted the lock
	NotMine   Point = "not mine"  // found the lock to be another's, and left it alone
	Aborted   Point = "aborted"   // could not give the lock back, because it was written meanwhile
	Broken    Point = "broken"    // has deleted a lock that looked abandoned
	Renewed   Point = "renewed"   // the watchdog has given the lock more time
	Refused   Point = "refused"   // the store has refused a late value
	Answered  Point = "answered"  // the request has its answer
	Announced Point = "announced" // a message or an event has woken this request
)

// Replica is what a protection works with: one server of the shop.
type Replica struct {
	Redis     *redis.Client
	DB        *sql.DB         // for stages that need it, as the next two
	Masters   []*redis.Client // that know nothing of each other
	ZooKeeper *zk.Conn

	// Load asks the origin. An empty value says that there is nothing of this name.
	Load func(ctx context.Context, key string) (value string, err error)

	// At is told each point that a request comes by, before what the point is named for is done,
	// and afterwards where it is in the past tense. An error ends the request there and then, with
	// nothing cleaned up.
	At func(ctx context.Context, p Point) error

	// Told is told what a library says of itself, when it was done: there is nothing to be held up.
	// It may be nil.
	Told func(ctx context.Context, p Point)

	Now      func() time.Time // this server's clock
	LockTTL  time.Duration    // how long a lock lasts, where it has an end
	CacheTTL time.Duration    // how long a cached value lasts, where it has an end
	Spin     time.Duration    // how long to wait before asking again
}

// Protection is one replica's way to a value: the cached one, or the one that a load brings.
type Protection interface {
	// Get returns the value of a key; empty if there is nothing of this name.
	Get(ctx context.Context, key string) (string, error)

	// Changed is called when the origin's value of a key has changed.
	Changed(ctx context.Context, key string) error

	// Close ends what the protection does in the background.
	Close() error
}

// nothing is what is cached for a key that has no value, so that not each request for it goes to
// the origin.
const nothing = "null"

// cached returns what is in the cache, and whether there is anything.
func (r *Replica) cached(ctx context.Context, key string) (value string, found bool, err error) {
	value, err = r.Redis.Get(ctx, key).Result()
	switch {
	case err == redis.Nil:
		return "", false, nil
	case err != nil:
		return "", false, err
	case value == nothing:
		return "", true, nil
	}
	return value, true, nil
}

// look is cached, and tells what it has found.
func (r *Replica) look(ctx context.Context, key string) (value string, found bool, err error) {
	value, found, err = r.cached(ctx, key)
	if err != nil {
		return "", false, err
	}
	if found {
		return value, true, r.At(ctx, Hit)
	}
	return "", false, r.At(ctx, Miss)
}

// fetch asks the origin.
func (r *Replica) fetch(ctx context.Context, key string) (string, error) {
	if err := r.At(ctx, Load); err != nil {
		return "", err
	}
	value, err := r.Load(ctx, key)
	if err != nil {
		return "", err
	}
	return value, r.At(ctx, Loaded)
}

// fill caches a value, or that there is none.
func (r *Replica) fill(ctx context.Context, key, value string, ttl time.Duration) error {
	if err := r.At(ctx, Fill); err != nil {
		return err
	}
	if value == "" {
		value = nothing
	}
	if err := r.Redis.Set(ctx, key, value, ttl).Err(); err != nil {
		return err
	}
	return r.At(ctx, Filled)
}

// fetchAndFill asks the origin and caches its answer.
func (r *Replica) fetchAndFill(ctx context.Context, key string) (string, error) {
	value, err := r.fetch(ctx, key)
	if err != nil {
		return "", err
	}
	return value, r.fill(ctx, key, value, r.CacheTTL)
}

// spin waits until it is time to ask again.
func (r *Replica) spin(ctx context.Context) error {
	if err := r.At(ctx, Wait); err != nil {
		return err
	}
	timer := time.NewTimer(r.Spin)
	defer timer.Stop()
	select {
	case <-timer.C:
		return r.At(ctx, Woken)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// drops is what protections do on a change that only cache in Redis: the next request loads.
type drops struct{ *Replica }

func (d drops) Changed(ctx context.Context, key string) error { return d.Redis.Del(ctx, key).Err() }

func (d drops) Close() error { return nil }
