package stage

import "net/url"

// Keys are the names that stages write in Redis for a key, so that somebody can remove them: the
// value, the lock, and what cacheguard has of it.
func Keys(key string) []string {
	guarded := "cg:" + guardName + ":{" + key + "}"
	return []string{key, lockName(key), guarded, guarded + ":lease", guarded + ":waiters", guarded + ":v2"}
}

// VoteKey is the name under which a master of Redlock keeps who has its vote for the lock of a key.
func VoteKey(key string) string { return votePrefix + ":" + lockName(key) }

// QueuePath is the node under which those who wait for the lock of a key stand in ZooKeeper.
func QueuePath(key string) string { return queuePath(lockName(key)) }

func queuePath(lock string) string { return "/" + url.PathEscape(lock) }

func lockName(key string) string { return "lock:" + key }
