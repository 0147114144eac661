package redisstore

import (
	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redislink"
)

var (
	//go:embed wake.lua
	wakeLua string
	//go:embed later.lua
	laterLua string
	//go:embed part.lua
	partLua string
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
	leaseScript      = redis.NewScript(laterLua + partLua + leaseLua)
	fillScript       = redis.NewScript(wakeLua + partLua + fillLua)
	concludeScript   = redis.NewScript(wakeLua + concludeLua)
	renewScript      = redis.NewScript(renewLua)
	releaseScript    = redis.NewScript(wakeLua + releaseLua)
	claimScript      = redis.NewScript(wakeLua + laterLua + partLua + claimLua)
	invalidateScript = redis.NewScript(wakeLua + invalidateLua)
	clockScript      = redis.NewScript(clockLua)
	permitScript     = redis.NewScript(permitLua)
	unpermitScript   = redis.NewScript(wakeLua + unpermitLua)
	probeScript      = redis.NewScript(probeLua)

	generationsScript = redis.NewScript(laterLua + generationsLua)
	bumpScript        = redis.NewScript(wakeLua + laterLua + bumpLua)
	markScript        = redis.NewScript(wakeLua + partLua + markLua)
)

var scripts = []*redis.Script{
	leaseScript, fillScript, concludeScript, renewScript, releaseScript, claimScript, invalidateScript, clockScript,
	permitScript, unpermitScript, probeScript, generationsScript, bumpScript, markScript,
}

// sources has the text of each script.
var sources = redislink.NewSources(
	laterLua+partLua+leaseLua, wakeLua+partLua+fillLua, wakeLua+concludeLua, renewLua, wakeLua+releaseLua,
	wakeLua+laterLua+partLua+claimLua,
	wakeLua+invalidateLua, clockLua, permitLua, wakeLua+unpermitLua, probeLua, laterLua+generationsLua,
	wakeLua+laterLua+bumpLua, wakeLua+partLua+markLua,
)
