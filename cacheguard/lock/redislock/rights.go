package redislock

import "github.com/cacheguard/cacheguard/internal/redislink"

// rules returns the rights that a locker needs in Redis' access control.
func (l *Locker) rules() redislink.Rules {
	return redislink.Rules{
		Package: "redislock", Keys: l.opts.Prefix + ":*", Channel: l.opts.Prefix + ":*",
		Sources: sources,
	}
}

// commands returns the commands of the scripts, with the keys of a lock that nobody can have. The
// commands leave nothing in these keys.
func (l *Locker) commands() [][]any {
	n := namesOfNobody(l.opts.Prefix)
	given := n.given("")
	return [][]any{
		{"TIME"},
		{"GET", n.lock}, {"SET", n.lock, "", "XX", "PX", 1}, {"PTTL", n.lock},
		{"PEXPIRE", n.lock, 1}, {"DEL", n.lock},
		{"GET", n.fence}, {"SET", n.fence, "", "XX", "PX", 1, "GET"},
		{"GET", given}, {"SET", given, "", "XX", "PX", 1},
		{"ZRANGE", n.line, 0, -1}, {"ZADD", n.line, "XX", 0, ""}, {"ZREM", n.line, ""},
		{"ZPOPMIN", n.line},
		{"PTTL", n.line}, {"PEXPIRE", n.line, 1},
		// HSET has no XX: Redis refuses its arguments.
		{"HGET", n.seen, ""}, {"HSET", n.seen, "", "", "no value"}, {"HDEL", n.seen, ""},
		{"PTTL", n.seen}, {"PEXPIRE", n.seen, 1},
		{"PUBLISH", l.channels() + "try", ""},
	}
}
