package redisstore

import (
	_ "embed"
	"strings"

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

// script is a script with its text, by which errors and tests find its lines.
type script struct {
	*redis.Script
	text string
}

func newScript(parts ...string) script {
	text := strings.Join(parts, "")
	return script{redis.NewScript(text), text}
}

var (
	leaseScript      = newScript(laterLua, partLua, leaseLua)
	fillScript       = newScript(wakeLua, partLua, fillLua)
	concludeScript   = newScript(wakeLua, concludeLua)
	renewScript      = newScript(renewLua)
	releaseScript    = newScript(wakeLua, releaseLua)
	claimScript      = newScript(wakeLua, laterLua, partLua, claimLua)
	invalidateScript = newScript(wakeLua, invalidateLua)
	clockScript      = newScript(clockLua)
	permitScript     = newScript(permitLua)
	unpermitScript   = newScript(wakeLua, unpermitLua)
	probeScript      = newScript(probeLua)

	generationsScript = newScript(laterLua, generationsLua)
	bumpScript        = newScript(wakeLua, laterLua, bumpLua)
	markScript        = newScript(wakeLua, partLua, markLua)
)

var scripts = []script{
	leaseScript, fillScript, concludeScript, renewScript, releaseScript, claimScript,
	invalidateScript, clockScript,
	permitScript, unpermitScript, probeScript, generationsScript, bumpScript, markScript,
}

var sources = redislink.NewSources(texts()...)

func texts() (all []string) {
	for _, s := range scripts {
		all = append(all, s.text)
	}
	return all
}
