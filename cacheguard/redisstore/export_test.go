package redisstore

import "github.com/cacheguard/cacheguard/cacheguard"

// The scripts' texts, for faults that strike one of them.
var (
	LeaseScript       = laterLua + leaseLua
	FillScript        = wakeLua + fillLua
	ConcludeScript    = wakeLua + concludeLua
	RenewScript       = renewLua
	ReleaseScript     = wakeLua + releaseLua
	ClaimScript       = wakeLua + laterLua + claimLua
	InvalidateScript  = wakeLua + invalidateLua
	ClockScript       = clockLua
	ProbeScript       = probeLua
	BumpScript        = wakeLua + laterLua + bumpLua
	MarkScript        = wakeLua + markLua
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

// CacheChannel is where changes of a cache are published.
func CacheChannel(prefix, cache string) string { return names{prefix: prefix}.channelOf(cache) }

// InboxChannel is where a process is told of what it waits for.
func (s *Store) InboxChannel() string { return s.names.inbox(s.inbox) }

// WaitersName is where those stand who wait for a key.
func WaitersName(prefix string, k cacheguard.Key) string {
	n := names{prefix: prefix}
	return n.waiters(n.value(k))
}

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
