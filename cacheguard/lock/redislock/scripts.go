package redislock

import (
	"context"
	_ "embed"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redislink"
)

var (
	//go:embed acquire.lua
	acquireLua string
	//go:embed renew.lua
	renewLua string
	//go:embed release.lua
	releaseLua string
	//go:embed take.lua
	takeLua string
)

var (
	acquireScript = newScript(acquireLua, 4)
	renewScript   = newScript(renewLua, 1)
	releaseScript = newScript(releaseLua, 5)
	takeScript    = newScript(takeLua, 3)
)

var scripts = []*script{acquireScript, renewScript, releaseScript, takeScript}

var sources = redislink.NewSources(acquireLua, renewLua, releaseLua, takeLua)

// script is a script in the form in which it is sent. Its parts have type any, as the client's
// methods take them, so that no step has to convert them.
type script struct {
	*redis.Script
	keys             int // number of keys
	text, hash, many any // many is keys as text
}

func newScript(text string, keys int) *script {
	s := redis.NewScript(text)
	return &script{s, keys, text, s.Hash(), strconv.Itoa(keys)}
}

// run runs the script with its keys and arguments. It sends the text of the script only if the
// server doesn't know the script.
func (s *script) run(ctx context.Context, rdb redis.UniversalClient, args []any) (any, error) {
	reply, err := rdb.Do(ctx, slices.Concat([]any{"evalsha", s.hash, s.many}, args)...).Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return rdb.Do(ctx, slices.Concat([]any{"eval", s.text, s.many}, args)...).Result()
	}
	return reply, err
}
