package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// garbageLeases returns entries that may be stored under the name of a lease and are no lease.
// Entries with a TTL end an hour from now, so no test can wait for their end.
func garbageLeases() []garbage {
	random := rand.New(rand.NewPCG(3, 4))
	token := strings.Repeat("0123456789abcdef", 2)
	all := append([]garbage{}, wrongTypes...)
	for _, foreign := range []string{
		"", "x", "-", "+", "!", "by another program", "locked", "1", "\x00", "- ", "+OK", "-ERR no",
		"!f", "!f:", "!f:1:1:",
		"!f" + token, "!f" + token + ":", "!f" + token + ":x:y:z", "!1" + token + ":1:1:",
		"!f" + token + ":-1:1:text",
		"-" + token[:31], "-" + token, "?" + token + "1", "-" + token + "x", "+" + token + "1.5",
		"-" + strings.ToUpper(token),
		"-" + strings.Repeat("z", 40), "-" + strings.Repeat("-", 40),
		"+an old lock: " + token + token, "-" + strings.Repeat("\xff", 60),
		token, token + "1700000000000000", "2026-11-21T00:00:00Z", "{\"owner\":\"" + token + "\"}",
		strings.Repeat("long ", 20000),
	} {
		all = append(all, text(fmt.Sprintf("foreign %.60q", foreign), []byte(foreign)))
	}
	for range 100 {
		b := make([]byte, random.IntN(100))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		if len(b) > 0 && random.IntN(2) == 0 {
			b[0] = "-+!"[random.IntN(3)]
		}
		all = append(all, text(fmt.Sprintf("random %x", b), b))
	}
	return all
}

// An entry under the name of a lease that is no lease is overwritten at once, whether or not it has
// a TTL.
func TestGarbageLease(t *testing.T) {
	ctx := t.Context()
	r := newReplica(t, redistest.Shared(t).Addr(), newPrefix())
	for i, g := range garbageLeases() {
		for _, ttl := range []time.Duration{0, time.Hour} {
			key := fmt.Sprintf("%d %v", i, ttl)
			must(t, g.put(ctx, r.rdb, r.leaseName(key)))
			if ttl > 0 {
				must(t, r.rdb.PExpire(ctx, r.leaseName(key), ttl).Err())
			}
			what := fmt.Sprintf("%s, with a TTL of %v", g.what, ttl)
			r.missesAndHits(t, what, key)
		}
	}
	if lines := r.log.With("cacheguard:"); len(lines) != 0 {
		t.Errorf("something was logged: %q", lines)
	}
}

// A true lease without an end, such as a program leaves that dies between SET and EXPIRE, blocks
// nobody.
func TestLeaseWithoutEnd(t *testing.T) {
	ctx := t.Context()
	server := redistest.Shared(t)
	prefix := newPrefix()
	r, other := newReplica(t, server.Addr(), prefix), newReplica(t, server.Addr(), prefix)
	o := newOrigin("v")
	letGo := o.hold()
	theirs := other.ask(t, 1, "k", o.load)
	waittest.Next(t, "a load begins", o.began)
	must(t, r.rdb.Persist(ctx, r.leaseName("k")).Err())
	mine := r.ask(t, 1, "k", o.load)
	waittest.Next(t, "the lease without an end is taken over", o.began)
	letGo()
	mine.got(t, "v")
	theirs.got(t, "v")
	o.loaded(t, 2)
	r.get(t, "k", mustNotLoad(t)).hit(t, "v")
	figures(t, "lease without a TTL", o.loads.Load(), 0, append(mine.answers, theirs.wait(t)...)...)
}

// A text that is no message does no harm, and the messages after it arrive.
func TestGarbageMessages(t *testing.T) {
	server := redistest.Shared(t)
	prefix := newPrefix()
	f := &wired{
		first: newReplica(t, server.Addr(), prefix), second: newReplica(t, server.Addr(), prefix),
	}
	f.third = f.second
	f.first.listens(t)
	f.second.listens(t)
	random := rand.New(rand.NewPCG(5, 6))
	_, err := f.first.rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for range 2000 {
			b := make([]byte, random.IntN(60))
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			if len(b) > 0 {
				b[0] = "cfor"[random.IntN(4)]
			}
			pipe.Publish(t.Context(), redisstore.Channel(prefix), b)
		}
		return nil
	})
	must(t, err)
	f.serves(t)
}
