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

// These are the points. Those up to Unlocked are roughly in the order in which a request passes
// them.
const (
	Hit      Point = "hit"      // the cached value is there
	Miss     Point = "miss"     // the cached value isn't there
	Try      Point = "try"      // asks for the lock
	Between  Point = "between"  // between the two commands that make the lock
	Acquired Point = "acquired" // has the lock
	Wait     Point = "wait"     // another request has the lock: waits
	Woken    Point = "woken"    // looks again
	Load     Point = "load"     // asks the origin
	Loaded   Point = "loaded"   // has the origin's answer
	Fill     Point = "fill"     // writes the value to the cache
	Filled   Point = "filled"   // has written the value
	Unlock   Point = "unlock"   // gives the lock back
	Compared Point = "compared" // between the two commands that give the lock back
	Unlocked Point = "unlocked" // has deleted the lock
	// Found that another request has the lock, and left the lock alone.
	NotMine Point = "not mine"
	// Could not give the lock back, because it was written in the meantime.
	Aborted   Point = "aborted"
	Broken    Point = "broken"    // has deleted a lock that looked abandoned
	Renewed   Point = "renewed"   // the watchdog has given the lock more time
	Refused   Point = "refused"   // the store has refused a late value
	Answered  Point = "answered"  // the request has its answer
	Announced Point = "announced" // a message or an event has woken this request
)

// Replica is one server of the shop, with the parts that a protection uses.
type Replica struct {
	Redis     *redis.Client
	DB        *sql.DB         // DB, Masters and ZooKeeper are for the stages that need them
	Masters   []*redis.Client // independent servers
	ZooKeeper *zk.Conn

	// Load asks the origin. An empty value means that there is no value with this name.
	Load func(ctx context.Context, key string) (value string, err error)

	// At is called at each point that a request passes: before the action that the point is named
	// for, or after it if the name is in the past tense. An error of At ends the request at once.
	// If the error is ErrHalted, the request leaves its lock behind, unless the lock is in the
	// process. After any other error between Acquired and Unlock, the request gives its lock back.
	At func(ctx context.Context, p Point) error

	// Told is called at points that a library reports after the action. A request can't be stopped
	// at these points. Told may be nil.
	Told func(ctx context.Context, p Point)

	Now      func() time.Time // this server's clock
	LockTTL  time.Duration    // the time that a lock lasts, if it expires
	CacheTTL time.Duration    // the time that a cached value lasts, if it expires
	Spin     time.Duration    // the pause before asking again
}

// Protection is one replica's way to get a value: the cached value, or the result of a load.
type Protection interface {
	// Get returns the value of a key. The value is empty if there is no value with this name.
	Get(ctx context.Context, key string) (string, error)

	// Call Changed after the origin's value of a key has changed.
	Changed(ctx context.Context, key string) error

	// Close ends the protection's background work.
	Close() error
}

// nothing is the cached value for a key that has no value. Without this value each request for the
// key would go to the origin.
const nothing = "null"

// cached returns the value in the cache, and whether there is one.
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

// look reads the cache with the method cached, and then reports the point Hit or Miss. After an
// error it reports no point.
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

// fill caches a value, or the fact that there is none.
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

// spin waits for the pause Spin before the request asks again.
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

// drops is for protections that cache only in Redis. On a change it deletes the cached value, so
// the next request loads.
type drops struct{ *Replica }

func (d drops) Changed(ctx context.Context, key string) error { return d.Redis.Del(ctx, key).Err() }

func (d drops) Close() error { return nil }
