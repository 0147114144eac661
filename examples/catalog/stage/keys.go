package stage

import "net/url"

// Keys returns the names of all keys that stages write in Redis for a key, so that a caller can
// remove them: the value, the lock, and cacheguard's keys.
func Keys(key string) []string {
	guarded := "cg:" + guardName + ":{" + key + "}"
	return []string{
		key, lockName(key), guarded, guarded + ":lease", guarded + ":waiters", guarded + ":v2",
	}
}

// VoteKey returns the name under which a master of Redlock stores its vote for the lock of a key.
func VoteKey(key string) string { return votePrefix + ":" + lockName(key) }

// QueuePath returns the path of the node in ZooKeeper under which requests wait for the lock of a
// key.
func QueuePath(key string) string { return queuePath(lockName(key)) }

func queuePath(lock string) string { return "/" + url.PathEscape(lock) }

func lockName(key string) string { return "lock:" + key }
