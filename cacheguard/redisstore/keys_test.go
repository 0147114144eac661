package redisstore_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// oddKeys returns keys that are known to cause trouble, and keys that look like the names of these
// keys.
func oddKeys() []string {
	long := strings.Repeat("k", 10_000)
	keys := []string{
		"", "{", "}", "}{", "{}", "{{", "}}", "{}{}", "a{b}c", "a}b", "a{b", "{a}", "}a{",
		"\r\n", "\n", "\x00", "a\x00b", "\xff", "\xfe\xff", "\xc3\x28", "*", "?", "[a]", " ", "\t",
		`\`, `\\`, `\}`, `\\}`, `\{`, `\a`, "a",
		"#sha256:", "#sha256:a", hashed("#sha256:a"), hashed(""), hashed("a"),
		long, hashed(long), long + "k", strings.Repeat("}", 10_000), strings.Repeat("\x00", 600),
		strings.Repeat("k", 512), strings.Repeat("k", 513),
		"}:lease", "a}:lease", "a:lease", ":lease", "{a}:lease", "a}:v2", "a:v2", "a}:lease}:lease",
		"cg:messages", "cg:clock", "GET a", "a\r\nDEL a\r\n",
	}
	return keys
}

func hashed(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "#sha256:" + hex.EncodeToString(sum[:])
}

func TestKeysOfAnyBytes(t *testing.T) {
	addr := redistest.Shared(t).Addr()
	prefix := newPrefix()
	keysOfAnyBytes(t, newReplica(t, addr, prefix), newReplica(t, addr, prefix))
}

// keysOfAnyBytes stores, reads and changes every odd key in one replica, and checks in the other
// replica that no key affects another one.
func keysOfAnyBytes(t *testing.T, a, b *replica) {
	t.Helper()
	ctx := t.Context()
	a.listens(t)
	b.listens(t)
	keys := oddKeys()
	value := func(i, version int) string { return fmt.Sprintf("%d of key %d", version, i) }
	whole := func(version func(i int) int) {
		t.Helper()
		for i, key := range keys {
			res, err := b.cache.GetResult(ctx, key, mustNotLoad(t))
			if want := value(i, version(i)); err != nil || res.Value != want ||
				res.Status != cacheguard.StatusHit {
				t.Errorf("key %.40q has %q, %v, %v; want a hit with %q", key, res.Value, res.Status,
					err, want)
			}
		}
	}
	// All leases are held at the same time.
	origins, callers := make([]*origin, len(keys)), make([]*crowd, len(keys))
	letGo := make([]func(), len(keys))
	for i, key := range keys {
		origins[i] = newOrigin(value(i, 1))
		letGo[i] = origins[i].hold()
		callers[i] = a.ask(t, 1, key, origins[i].load)
		waittest.Next(t, fmt.Sprintf("key %.40q is loaded", key), origins[i].began)
	}
	for i := range keys {
		letGo[i]()
		callers[i].got(t, value(i, 1))
		origins[i].loaded(t, 1)
	}
	whole(func(int) int { return 1 })
	for i, key := range keys {
		must(t, a.cache.Set(ctx, key, value(i, 2)))
		whole(func(j int) int { return map[bool]int{true: 2, false: 1}[j <= i] })
	}
	for i, key := range keys {
		_, err := a.cache.Update(ctx, key, newOrigin(value(i, 3)).load)
		must(t, err)
	}
	whole(func(int) int { return 3 })
	for i, key := range keys {
		must(t, a.cache.Invalidate(ctx, key))
		if res, err := b.cache.Peek(ctx, key); err != nil || res.Status != cacheguard.StatusMiss {
			t.Errorf("key %.40q is %v, %v after its invalidation; want a miss", key, res, err)
		}
		must(t, a.cache.Set(ctx, key, value(i, 3)))
	}
	whole(func(int) int { return 3 })
	must(t, a.cache.Invalidate(ctx, keys...))
	for _, key := range keys {
		if res, err := b.cache.Peek(ctx, key); err != nil || res.Status != cacheguard.StatusMiss {
			t.Errorf("key %.40q is %v, %v after the invalidation of all; want a miss", key, res,
				err)
		}
	}
	for kind, r := range map[string]*replica{"first": a, "second": b} {
		if n := r.events.of(cacheguard.EventStoreError); n != 0 {
			t.Errorf("the %s replica saw %d errors of the store: %q", kind, n, r.log.With())
		}
	}
}
