package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// user returns a client of a user with the documented rights. change adds rights or takes them
// away.
func user(t *testing.T, admin *redis.Client, prefix string, change ...any) *redis.Client {
	t.Helper()
	doc, err := os.ReadFile("../../../docs/locks.md")
	must(t, err)
	found := regexp.MustCompile(`(?m)^ACL SETUSER redislock (.*)$`).FindSubmatch(doc)
	if found == nil {
		t.Fatal("docs/locks.md has no ACL rule")
	}
	rule := []any{"ACL", "SETUSER", "locks", "reset"}
	for _, word := range strings.Fields(strings.ReplaceAll(string(found[1]), "cglock", prefix)) {
		rule = append(rule, word)
	}
	must(t, admin.Do(t.Context(), append(rule, change...)...).Err())
	rdb := redis.NewClient(&redis.Options{
		Addr: admin.Options().Addr, Username: "locks", Password: "secret",
		ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// The documented rights are enough, also for waiting. Warm names all missing rights.
func TestWarmNamesMissingRights(t *testing.T) {
	const prefix = "rights"
	admin := client(t, redistest.Start(t).Addr())
	l := open(t, user(t, admin, prefix), redislock.Options{Prefix: prefix})
	must(t, l.Warm(t.Context()))
	held := locked(t, l, "n")
	waits := calls(t.Context(), l, "n")
	line(t, admin, prefix, "n", 1)
	unlock(t, held)
	unlock(t, waits.lock(t))
	if left := admin.Keys(t.Context(), "*}*{\\*").Val(); len(left) > 0 {
		t.Errorf("Warm left %q", left)
	}
	for _, change := range [][]any{
		{"-get", "-set"}, {"-evalsha"}, {"-eval"}, {"-ping"}, {"-subscribe"}, {"-script"},
		{
			"-del", "-pexpire", "-pttl", "-time", "-zadd", "-zrem", "-zpopmin", "-zrange", "-hset",
			"-hget", "-hdel", "-publish",
		},
		{"resetkeys"}, {"resetkeys", "~" + prefix + ":{*}"}, {"resetchannels"},
		{"resetchannels", "-get"},
	} {
		t.Run(fmt.Sprint(change...), func(t *testing.T) {
			l := open(t, user(t, admin, prefix, change...), redislock.Options{Prefix: prefix})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := l.Warm(ctx)
			for _, rule := range change {
				switch right := rule.(string); {
				case right == "resetkeys":
					says(t, err, "lacks", "~"+prefix+":*")
				case right == "resetchannels":
					says(t, err, "lacks", "&"+prefix+":*")
				case right[0] == '-':
					says(t, err, "lacks", "+"+right[1:])
				}
			}
		})
	}
}

// If the server is a replica, Warm says so, even if the user lacks a right.
func TestWarmNamesAReplica(t *testing.T) {
	const prefix = "replica"
	admin := client(t, redistest.Start(t).Addr())
	must(t, admin.ReplicaOf(t.Context(), "127.0.0.1", "1").Err()) // no server has this address
	for _, rdb := range []*redis.Client{admin, user(t, admin, prefix, "-get")} {
		l := open(t, rdb, redislock.Options{Prefix: prefix})
		says(t, l.Warm(t.Context()), "this is a replica, which can't be written to")
		if rdb != admin {
			says(t, l.Warm(t.Context()), "lacks +get")
		}
	}
	must(t, admin.ReplicaOf(t.Context(), "NO", "ONE").Err())
	must(t, open(t, admin, redislock.Options{Prefix: prefix}).Warm(t.Context()))
}

// Warm tries each command of the scripts, with the same key.
func TestWarmTriesAllCommands(t *testing.T) {
	tried := redislock.Tried(open(t, client(t, "127.0.0.1:1"), redislock.Options{}))
	for file, keys := range map[string][]string{
		redislock.AcquireScript: {"lock", "line", "seen", "fence"}, redislock.RenewScript: {"lock"},
		redislock.ReleaseScript: {"lock", "line", "seen", "given", "fence"},
		redislock.TakeScript:    {"lock", "fence", "given"},
	} {
		for _, call := range regexp.MustCompile(`redis\.p?call\('(\w+)'(?:, KEYS\[(\d)\])?`).
			FindAllStringSubmatch(file, -1) {
			command := call[1]
			if call[2] != "" {
				command += " " + keys[call[2][0]-'1']
			}
			if !tried[command] {
				t.Errorf("Warm doesn't try %s", command)
			}
		}
		for i, l := range strings.Split(file, "\n") {
			if strings.Count(l, "redis.call")+strings.Count(l, "redis.pcall") > 1 {
				t.Errorf("line %d has two commands: of which one an error tells can't be said: %s",
					i+1, l)
			}
		}
	}
}

// If a right is missing, the error of a call names it, although Redis itself names only a line of a
// script.
func TestMissingRightsAreNamed(t *testing.T) {
	const prefix = "lacking"
	admin := client(t, redistest.Start(t).Addr())
	holder := locker(t, admin.Options().Addr, redislock.Options{Prefix: prefix})
	for _, command := range []string{"get", "set", "time", "pttl", "evalsha"} {
		t.Run(command, func(t *testing.T) {
			name := "of " + command
			held := locked(t, holder, name)
			l := open(t, user(t, admin, prefix, "-"+command), redislock.Options{Prefix: prefix})
			if command == "set" {
				unlock(t, held)
			}
			_, err := l.TryLock(t.Context(), name)
			says(t, err, "lacks +"+command+":")
			if command != "set" {
				unlock(t, held)
			}
		})
	}
}

// The error for a used-up pool differs from the error for a server that doesn't reply.
func TestPoolIsUsedUp(t *testing.T) {
	addr := redistest.Shared(t).Addr()
	for name, careful := range map[string]bool{"careful": true, "default": false} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{
				Addr: addr, PoolSize: 1, ContextTimeoutEnabled: careful,
			})
			t.Cleanup(func() { _ = rdb.Close() })
			l := open(t, rdb, redislock.Options{Prefix: "pool", OpTimeout: 2 * time.Second})
			mine := rdb.Conn()
			must(t, mine.Ping(t.Context()).Err())
			_, err := l.TryLock(t.Context(), name)
			says(t, err, "no connection is free (within 2s", "PoolSize 1")
			if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it seems to be the caller's deadline: %v", err)
			}
			must(t, mine.Close())
			unlock(t, locked(t, l, name))
		})
	}
}
