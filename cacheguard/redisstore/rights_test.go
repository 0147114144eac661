package redisstore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/cacheguard/storetest"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/report"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// leastRights returns the ACL rule that docs/redis.md gives for the prefix "cg".
func leastRights(t *testing.T) []any {
	t.Helper()
	doc, err := os.ReadFile("../../docs/redis.md")
	must(t, err)
	found := regexp.MustCompile(`(?m)^ACL SETUSER cacheguard (.*)$`).FindSubmatch(doc)
	if found == nil {
		t.Fatal("docs/redis.md has no ACL rule")
	}
	args := []any{"ACL", "SETUSER", "cacheguard"}
	for _, word := range strings.Fields(string(found[1])) {
		args = append(args, word)
	}
	return args
}

// named returns the rights that the documentation gives for the prefix "cg", for another prefix,
// with change added.
func named(prefix string, change ...any) []any {
	return append([]any{
		"~" + prefix + ":*", "&" + prefix + ":messages", "&" + prefix + ":messages:*",
	}, change...)
}

// newUser makes a client for a user with the documented rights, to which change adds or from which
// it removes rights.
func newUser(t *testing.T, admin *redis.Client, change ...any) *redis.Client {
	t.Helper()
	rule := append(leastRights(t), change...)
	must(t, admin.Do(t.Context(), rule...).Err())
	rdb := redis.NewClient(&redis.Options{
		Addr: admin.Options().Addr, Username: "cacheguard", Password: "secret",
		ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// TestConformanceLeastRights shows that the documented rights are enough.
func TestConformanceLeastRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := newClient(t, server.Addr())
	storetest.Run(t, func(t *testing.T) storetest.Fleet {
		names := named(conformancePrefix)
		return openFleet(t, newUser(t, admin, names...), newUser(t, admin, names...), admin)
	})
	refused, err := admin.Do(t.Context(), "ACL", "LOG").Slice()
	must(t, err)
	for _, entry := range refused {
		// go-redis sends its name and accepts a refusal.
		if said := fmt.Sprint(entry); !strings.Contains(said, "client") {
			t.Errorf("something was refused: %s", said)
		}
	}
}

// Without the right to subscribe, processes get no messages. Waiting processes ask from time to
// time, at growing intervals, and there still is one load. One line of the log reports the missing
// right.
func TestNoRightToSubscribe(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := newClient(t, server.Addr())
	prefix := newPrefix()
	var replicas []*replica
	for range 3 {
		rdb := newUser(t, admin, named(prefix, "-subscribe")...)
		replicas = append(replicas, newReplica(t, "", prefix, func(s *site) { s.rdb = rdb }))
	}
	o := newOrigin("v")
	letGo := o.hold()
	all := crowds{replicas[0].ask(t, 3, "k", o.load)}
	waittest.Next(t, "the first replica loads", o.began)
	began := time.Now()
	const asks = 6
	for _, r := range replicas[1:] {
		all = append(all, r.ask(t, 3, "k", o.load))
	}
	for _, r := range replicas[1:] {
		waittest.Until(t, "a waiter asks from time to time", func() bool {
			return r.store.told(cacheguard.LeaseHeld) >= asks
		})
	}
	// The intervals are 25 ms, and twice as long each time.
	if took := time.Since(began); took < 25*(1+2+4+8+16)*time.Millisecond {
		t.Errorf("a waiter asked %d times in %v; want ever longer pauses", asks, took)
	}
	letGo()
	all.got(t, "v")
	o.loaded(t, 1)
	for i, r := range replicas {
		if r.store.Listening() {
			t.Errorf("replica %d says that messages arrive", i)
		}
		if n := r.log.Count("messages don't arrive", "lacks +subscribe"); n != 1 {
			t.Errorf("replica %d has logged why no messages arrive %d times; want once", i, n)
		}
		r.get(t, "k", mustNotLoad(t)).hit(t, "v")
	}
}

// Without the right to run scripts, the log names the missing right exactly and once, and callers
// are served.
func TestNoRightToRunScripts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change []any
		says   string
	}{
		"none":         {[]any{"-evalsha", "-eval"}, "lacks +evalsha:"},
		"by hash only": {[]any{"-eval"}, "lacks +eval:"}, // nobody has loaded the scripts
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			admin := newClient(t, server.Addr())
			prefix := newPrefix()
			rdb := newUser(t, admin, named(prefix, test.change...)...)
			r := newReplica(t, "", prefix, func(s *site) { s.rdb = rdb })
			o := newOrigin("v")
			var all []answer
			for range 5 {
				a := r.get(t, "k", o.load)
				a.is(t, "v")
				if !a.res.Degraded {
					t.Errorf("a caller who was served without Redis wasn't told so")
				}
				all = append(all, a)
			}
			if lines := r.log.With("NOPERM", test.says); len(lines) != 1 {
				t.Errorf("that the user %s was logged in %d lines; want 1: %q", test.says,
					len(lines), r.log.With())
			}

			must(t,
				admin.Do(t.Context(), "ACL", "SETUSER", "cacheguard", "+evalsha", "+eval").Err())
			began := time.Now()
			waittest.Until(t, "Redis is used", func() bool {
				return !r.get(t, "k", o.load).res.Degraded
			})
			figures(t, "the user "+strings.TrimSuffix(test.says, ":"), o.loads.Load(),
				time.Since(began), all...)
			r.get(t, "k", mustNotLoad(t)).hit(t, "v")
		})
	}
}

// Without the right to publish, processes get no messages. Values are still shared, and waiting
// processes look again when the lease is over. One line of the log names the missing right.
func TestNoRightToPublish(t *testing.T) {
	t.Parallel()
	const lease = 5 * time.Second
	server := redistest.Start(t)
	admin := newClient(t, server.Addr())
	prefix := newPrefix()
	rdb := newUser(t, admin, named(prefix, "-publish")...)
	join := func() *replica {
		r := newReplica(t, "", prefix, func(s *site) { s.rdb, s.cache.LeaseTTL = rdb, lease })
		r.listens(t)
		return r
	}
	first, second := join(), join()
	o := newOrigin("v")
	letGo := o.hold()
	mine := first.ask(t, 3, "k", o.load)
	waittest.Next(t, "the first replica loads", o.began)
	theirs := second.ask(t, 3, "k", o.load)
	second.waits(t)
	ended := time.Now()
	letGo()
	all := append(mine.wait(t), theirs.wait(t)...)
	took := time.Since(ended)
	for i := range all {
		all[i].is(t, "v")
		all[i].took = took
	}
	if took > lease+2*soon {
		t.Errorf("the last caller was answered %v after the load; want the lease of %v at most",
			took, lease)
	}
	o.loaded(t, 1)
	if lines := first.log.With("lacks +publish:"); len(lines) != 1 {
		t.Errorf("that +publish is missing was logged in %d lines; want 1: %q", len(lines),
			first.log.With())
	}
	second.get(t, "k", mustNotLoad(t)).hit(t, "v")
	if err := second.cache.Invalidate(t.Context(), "k"); err == nil ||
		!strings.Contains(err.Error(), "lacks +publish:") {
		t.Errorf("Invalidate gave %v; want that +publish is missing", err)
	}
	figures(t, "the user lacks +publish (waits since the load's end)", o.loads.Load(), 0, all...)
}

// Redis says on which line of a script a command was refused. So no line of a script has two
// commands.
func TestOneCommandOnALine(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.lua")
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			if strings.Count(line, "redis.call(")+strings.Count(line, "redis.pcall(") > 1 {
				t.Errorf("%s:%d: %s", file, i+1, line)
			}
		}
	}
}

// A connection that is cut because the user has lost a right is logged with that right, although
// the first that is seen is only the cut.
func TestRightToSubscribeIsLost(t *testing.T) {
	t.Parallel()
	admin := newClient(t, redistest.Start(t).Addr())
	prefix := newPrefix()
	rdb := newUser(t, admin, named(prefix)...)
	r := newReplica(t, "", prefix, func(s *site) { s.rdb = rdb })
	waittest.Until(t, "messages arrive", r.store.Listening)
	must(t,
		admin.Do(t.Context(), "ACL", "SETUSER", "cacheguard", "-subscribe", "-psubscribe").Err())
	must(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "cacheguard").Err())
	r.log.Await(t, 1, "messages don't arrive", "lacks +subscribe")
	must(t, admin.Do(t.Context(), "ACL", "SETUSER", "cacheguard", "+subscribe").Err())
	r.log.Await(t, 1, "messages don't arrive", "lacks +psubscribe")
}

// The store says why messages don't arrive, since when, and when that was last. Without the right
// to send PING, messages arrive again and again for less than a second, and the cause stays.
func TestStoreSaysWhyMessagesDontArrive(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  []any
		mend    string
		cause   string
		says    string
		arrives bool
	}{
		"no right to subscribe": {
			[]any{"-subscribe"}, "+subscribe", "the Redis user lacks a right", "lacks +subscribe",
			false,
		},
		"no right to ping": {
			[]any{"-ping"}, "+ping", "the Redis user lacks a right", "lacks +ping", true,
		},
		"wrong password": {
			[]any{">another", "<secret"}, ">secret", "authentication failed", "WRONGPASS", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			admin := newClient(t, redistest.Start(t).Addr())
			prefix := newPrefix()
			rdb := newUser(t, admin, named(prefix, c.change...)...)
			s := newStore(t, rdb, redisstore.Options{Prefix: prefix, OpTimeout: opTimeout})
			if _, _, err := s.Deafness(); err != nil {
				t.Errorf("nobody listens yet, and it says %v", err)
			}
			began := time.Now()
			waittest.Until(t, "it says why", func() bool {
				listening := s.Listening()
				since, last, err := s.Deafness()
				server, cause := report.Where(err)
				return err != nil && server == rdb.Options().Addr && cause == c.cause &&
					strings.Contains(err.Error(), c.says) &&
					!since.Before(began) && last.After(since) && listening == c.arrives
			})

			must(t, admin.Do(t.Context(), "ACL", "SETUSER", "cacheguard", c.mend).Err())
			waittest.Until(t, "messages arrive", func() bool {
				_, _, err := s.Deafness()
				return err == nil && s.Listening()
			})

		})
	}
}
