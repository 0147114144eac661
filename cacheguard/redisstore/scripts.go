package redisstore

import (
	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redislink"
)

var (
	//go:embed later.lua
	laterLua string
	//go:embed lease.lua
	leaseLua string
	//go:embed fill.lua
	fillLua string
	//go:embed conclude.lua
	concludeLua string
	//go:embed renew.lua
	renewLua string
	//go:embed release.lua
	releaseLua string
	//go:embed claim.lua
	claimLua string
	//go:embed invalidate.lua
	invalidateLua string
	//go:embed clock.lua
	clockLua string
	//go:embed permit.lua
	permitLua string
	//go:embed probe.lua
	probeLua string
	//go:embed generations.lua
	generationsLua string
	//go:embed bump.lua
	bumpLua string
	//go:embed mark.lua
	markLua string
	//go:embed unpermit.lua
	unpermitLua string
)

var (
	leaseScript      = redis.NewScript(laterLua + leaseLua)
	fillScript       = redis.NewScript(fillLua)
	concludeScript   = redis.NewScript(concludeLua)
	renewScript      = redis.NewScript(renewLua)
	releaseScript    = redis.NewScript(releaseLua)
	claimScript      = redis.NewScript(laterLua + claimLua)
	invalidateScript = redis.NewScript(invalidateLua)
	clockScript      = redis.NewScript(clockLua)
	permitScript     = redis.NewScript(permitLua)
	unpermitScript   = redis.NewScript(unpermitLua)
	probeScript      = redis.NewScript(probeLua)

	generationsScript = redis.NewScript(laterLua + generationsLua)
	bumpScript        = redis.NewScript(laterLua + bumpLua)
	markScript        = redis.NewScript(markLua)
)

var scripts = []*redis.Script{
	leaseScript, fillScript, concludeScript, renewScript, releaseScript, claimScript, invalidateScript, clockScript,
	permitScript, unpermitScript, probeScript, generationsScript, bumpScript, markScript,
}

// sources has the text of each of scripts.
var sources = redislink.NewSources(
	laterLua+leaseLua, fillLua, concludeLua, renewLua, releaseLua, laterLua+claimLua, invalidateLua, clockLua, permitLua, unpermitLua,
	probeLua, laterLua+generationsLua, laterLua+bumpLua, markLua,
)
