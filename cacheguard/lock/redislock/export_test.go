package redislock

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// These are the scripts' texts, for faults that affect only one script.
var (
	AcquireScript = acquireLua
	RenewScript   = renewLua
	ReleaseScript = releaseLua
	TakeScript    = takeLua
)

// Lease returns a locker's Lease.
func (l *Locker) Lease() time.Duration { return l.opts.Lease }

// Naps returns the first n pauses of a waiting call to which messages don't arrive.
func (l *Locker) Naps(n int) (all []time.Duration) {
	for poll := l.next(firstPoll / 2); len(all) < n; poll = l.next(poll) {
		all = append(all, nap(poll))
	}
	return all
}

// NextOwner returns the name of the owner of the locker's next question.
func NextOwner(l *Locker) string {
	return l.process + "/" + strconv.FormatInt(l.asked.Load()+1, 36)
}

// LockName returns the key of a lock.
func LockName(prefix, name string) string { return namesOf(prefix, name).lock }

// LineName returns the key of the queue of the calls that wait for a lock.
func LineName(prefix, name string) string { return namesOf(prefix, name).line }

// FenceName returns the key of a lock's last fencing token.
func FenceName(prefix, name string) string { return namesOf(prefix, name).fence }

// SeenName returns the key that stores for each waiting call how long the call counts as present.
func SeenName(prefix, name string) string { return namesOf(prefix, name).seen }

// Leave sends the release that an owner's process sends when it gives up, on a single server that
// keeps the order of arrival.
func Leave(ctx context.Context, rdb *redis.Client, prefix, name, owner string) error {
	n := namesOf(prefix, name)
	return releaseScript.Run(ctx, rdb, []string{n.lock, n.line, n.seen, n.given(owner), n.fence},
		owner, "1", "1", 1000, fenceMemory).Err()
}

// Debts returns the number of locks that will be given back when Redis replies again.
func (l *Locker) Debts() int { return l.debts.Len() }

// Tried returns the commands that Warm tries, each with its key.
func Tried(l *Locker) map[string]bool {
	n, tried := namesOfNobody(l.opts.Prefix), make(map[string]bool)
	keys := map[any]string{
		n.lock: " lock", n.line: " line", n.seen: " seen", n.fence: " fence", n.given(""): " given",
	}
	for _, command := range l.commands() {
		key := ""
		if len(command) > 1 {
			key = keys[command[1]]
		}
		tried[command[0].(string)], tried[command[0].(string)+key] = true, true
	}
	return tried
}
