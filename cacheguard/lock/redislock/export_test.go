package redislock

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// The scripts' texts, for faults that strike one of them.
var (
	AcquireScript = acquireLua
	RenewScript   = renewLua
	ReleaseScript = releaseLua
	TakeScript    = takeLua
)

// Lease is that of a locker.
func (l *Locker) Lease() time.Duration { return l.opts.Lease }

// NextOwner is how the next question of a locker will be called.
func NextOwner(l *Locker) string { return l.process + "/" + strconv.FormatInt(l.asked.Load()+1, 36) }

// LockName is where a lock stands.
func LockName(prefix, name string) string { return namesOf(prefix, name).lock }

// LineName is where those wait that want it.
func LineName(prefix, name string) string { return namesOf(prefix, name).line }

// FenceName is where its last fencing token is kept.
func FenceName(prefix, name string) string { return namesOf(prefix, name).fence }

// SeenName is where it stands until when each of them counts as there.
func SeenName(prefix, name string) string { return namesOf(prefix, name).seen }

// Leave is what an owner's process sends when it gives up, in order of arrival, on a single server.
func Leave(ctx context.Context, rdb *redis.Client, prefix, name, owner string) error {
	n := namesOf(prefix, name)
	return releaseScript.Run(ctx, rdb, []string{n.lock, n.line, n.seen, n.given(owner), n.fence},
		owner, "1", "1", 1000, fenceMemory).Err()
}

// Debts is how many locks are to be given back when Redis answers again.
func (l *Locker) Debts() int { return l.debts.Len() }

// Tried are the commands that Warm tries, each with its key.
func Tried(l *Locker) map[string]bool {
	n, tried := namesOfNobody(l.opts.Prefix), make(map[string]bool)
	keys := map[any]string{n.lock: " lock", n.line: " line", n.seen: " seen", n.fence: " fence", n.given(""): " given"}
	for _, command := range l.commands() {
		key := ""
		if len(command) > 1 {
			key = keys[command[1]]
		}
		tried[command[0].(string)], tried[command[0].(string)+key] = true, true
	}
	return tried
}
