package redisstore

import (
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// These are the texts of the scripts, for faults that concern one of them.
var (
	LeaseScript       = leaseScript.text
	FillScript        = fillScript.text
	ConcludeScript    = concludeScript.text
	RenewScript       = renewScript.text
	ReleaseScript     = releaseScript.text
	ClaimScript       = claimScript.text
	InvalidateScript  = invalidateScript.text
	ClockScript       = clockScript.text
	ProbeScript       = probeScript.text
	BumpScript        = bumpScript.text
	MarkScript        = markScript.text
	GenerationsScript = generationsScript.text
)

// ValueName returns the name of a key's value.
func ValueName(prefix string, k cacheguard.Key) string { return names{prefix: prefix}.value(k) }

// LeaseName returns the name of a key's lease.
func LeaseName(prefix string, k cacheguard.Key) string {
	n := names{prefix: prefix}
	return n.lease(n.value(k))
}

// Channel returns the common channel of a prefix.
func Channel(prefix string) string { return names{prefix: prefix}.channel() }

// CacheChannel returns the channel on which changes of a cache are published.
func CacheChannel(prefix, cache string) string { return names{prefix: prefix}.channelOf(cache) }

// InboxChannel returns the channel on which a process gets messages about the loads that it waits
// for.
func (s *Store) InboxChannel() string { return s.names.inbox(s.inbox) }

// WaitersName returns the name of the list of processes that wait for a key.
func WaitersName(prefix string, k cacheguard.Key) string {
	n := names{prefix: prefix}
	return n.waiters(n.value(k))
}

// ClockName returns the name whose node is asked for the time.
func ClockName(prefix string) string { return names{prefix: prefix}.clock() }

// FilledMessage returns the message of a fill, without the frame.
func FilledMessage(k cacheguard.Key, load cacheguard.ID) []byte {
	return encodeMessage(kindFilled, k, load)
}

// ChangedMessage returns the message of a change.
func ChangedMessage(k cacheguard.Key) []byte {
	return encodeMessage(kindChanged, k, cacheguard.ID{})
}

// WholeName returns the name of the separately stored generation of a whole cache.
func WholeName(prefix, cache string) string { return names{prefix: prefix}.whole(cache) }

// GenerationsName returns the name of a cache's generations.
func GenerationsName(prefix, cache string) string {
	return names{prefix: prefix}.generations(cache)
}

// Older reports whether a server's version is too old.
var Older = older

// SetSlowTrip sets how long a batch of reads takes at least if it is slow.
func (s *Store) SetSlowTrip(d time.Duration) { s.reads.slowTrip = d }

// Lanes returns the number of lanes that have batches.
func (s *Store) Lanes() int {
	s.reads.mu.Lock()
	defer s.reads.mu.Unlock()
	return len(s.reads.lanes)
}

// ReadsUnderWay returns the number of single reads under way.
func (s *Store) ReadsUnderWay() int { return int(s.reads.under.Load()) }

// ReadsCollected returns the number of reads in batches that are not sent yet.
func (s *Store) ReadsCollected() (n int) {
	s.reads.mu.Lock()
	defer s.reads.mu.Unlock()
	for _, l := range s.reads.lanes {
		n += l.reads
		if l.next != nil {
			n += len(l.next.names())
		}
	}
	return n
}
