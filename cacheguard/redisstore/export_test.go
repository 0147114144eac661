package redisstore

import "github.com/cacheguard/cacheguard/cacheguard"

// The scripts' texts, for faults that strike one of them.
var (
	LeaseScript       = laterLua + leaseLua
	FillScript        = fillLua
	ConcludeScript    = concludeLua
	RenewScript       = renewLua
	ReleaseScript     = releaseLua
	ClaimScript       = laterLua + claimLua
	InvalidateScript  = invalidateLua
	ClockScript       = clockLua
	ProbeScript       = probeLua
	BumpScript        = laterLua + bumpLua
	MarkScript        = markLua
	GenerationsScript = laterLua + generationsLua
)

// ValueName is where a key's value stands.
func ValueName(prefix string, k cacheguard.Key) string { return names{prefix: prefix}.value(k) }

// LeaseName is where a key's lease stands.
func LeaseName(prefix string, k cacheguard.Key) string {
	n := names{prefix: prefix}
	return n.lease(n.value(k))
}

// Channel is where a prefix' messages are published.
func Channel(prefix string) string { return names{prefix: prefix}.channel() }

// ClockName is what is asked for the time.
func ClockName(prefix string) string { return names{prefix: prefix}.clock() }

// FilledMessage is the message of a fill, without the frame.
func FilledMessage(k cacheguard.Key, load cacheguard.ID) []byte {
	return encodeMessage(kindFilled, k, load)
}

// ChangedMessage is the message of a change.
func ChangedMessage(k cacheguard.Key) []byte { return encodeMessage(kindChanged, k, cacheguard.ID{}) }

// WholeName is where the generation of a whole cache stands by itself.
func WholeName(prefix, cache string) string { return names{prefix: prefix}.whole(cache) }

// GenerationsName is where a cache's generations stand.
func GenerationsName(prefix, cache string) string { return names{prefix: prefix}.generations(cache) }

// Older is which versions of a server are too old.
var Older = older
