package contender

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"
)

// plain are the contenders that need no library except go-redis and x/sync.
var plain = []Contender{
	{
		Name: "none", What: "GET, load, SET", Note: "Redis' errors are returned.",
		Open: func(ctx context.Context, r Rig) (Protection, error) {
			return &ReadThrough{r}, r.Redis.Ping(ctx).Err()
		},
	},
	{
		Name: "singleflight", What: "x/sync/singleflight in each process, and in it GET, load, SET",
		Note: "Redis' errors are returned.",
		Open: func(ctx context.Context, r Rig) (Protection, error) {
			return &single{ReadThrough: ReadThrough{r}}, r.Redis.Ping(ctx).Err()
		},
	},
	flightLock,
}

// ReadThrough is the plain pattern, GET, load, SET, with a sentinel for values that don't exist.
type ReadThrough struct{ Rig }

func (p *ReadThrough) Get(ctx context.Context, key string) (string, bool, error) {
	v, found, err := p.Look(ctx, key)
	if !errors.Is(err, redis.Nil) {
		return v, found, err
	}
	return p.fill(ctx, key)
}

// fill loads a value and stores it.
func (p *ReadThrough) fill(ctx context.Context, key string) (string, bool, error) {
	v, found, err := p.Load(ctx, key)
	if err != nil {
		return "", false, err
	}
	if !found {
		return "", false, p.Redis.Set(ctx, key, Missing, p.TTL).Err()
	}
	return v, true, p.Redis.Set(ctx, key, v, p.TTL).Err()
}

// Look returns redis.Nil if nothing is cached.
func (p *ReadThrough) Look(ctx context.Context, key string) (string, bool, error) {
	v, err := p.Redis.Get(ctx, key).Result()
	if err != nil || v == Missing {
		return "", false, err
	}
	return v, true, nil
}

// GetMany is MGET. It doesn't load missing values.
func (p *ReadThrough) GetMany(ctx context.Context, keys []string) (map[string]string, error) {
	got, err := p.Redis.MGet(ctx, keys...).Result()
	values := make(map[string]string, len(keys))
	for i, v := range got {
		if s, ok := v.(string); ok && s != Missing {
			values[keys[i]] = s
		}
	}
	return values, err
}

func (p *ReadThrough) Invalidate(ctx context.Context, key string) error {
	return p.Redis.Del(ctx, key).Err()
}

func (p *ReadThrough) Close() error { return nil }

// single is the plain pattern inside a flight of golang.org/x/sync.
type single struct {
	ReadThrough
	group singleflight.Group
}

type outcome struct {
	value string
	found bool
}

func (s *single) Get(ctx context.Context, key string) (string, bool, error) {
	return s.fly(key, func() (string, bool, error) { return s.ReadThrough.Get(ctx, key) })
}

// fly lets callers that ask for a key at the same time share one call.
func (s *single) fly(key string, get func() (string, bool, error)) (string, bool, error) {
	v, err, _ := s.group.Do(key, func() (any, error) {
		value, found, err := get()
		return outcome{value, found}, err
	})
	o, _ := v.(outcome)
	return o.value, o.found, err
}
