package redlock

import (
	_ "embed"

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
)

var (
	acquireScript = redis.NewScript(acquireLua)
	renewScript   = redis.NewScript(renewLua)
	releaseScript = redis.NewScript(releaseLua)
)

var sources = redislink.NewSources(acquireLua, renewLua, releaseLua)

var scripts = []*redis.Script{acquireScript, renewScript, releaseScript}
