package redisstore

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// pieces are the parts of which names are made, and of which keys are made that imitate other
// names.
var pieces = []string{
	"", "{", "}", "\\", ":", "a", "b", "lease", ":lease", ":v2", "cg", "test", "messages", "clock",
	"\x00", "\xff", "\r\n",
}

func piecesOf(random *rand.Rand, most int, without string) string {
	var b strings.Builder
	for range random.IntN(most + 1) {
		if piece := pieces[random.IntN(len(pieces))]; without == "" ||
			!strings.ContainsAny(piece, without) {
			b.WriteString(piece)
		}
	}
	return b.String()
}

// whose names the owner of a name in messages of the test.
type whose struct{ prefix, of string }

// No two keys of any caches and prefixes share a name of any kind, and no name of a key is a name
// of a prefix, a cache or a budget. In this test a cache's name may have braces, although New
// refuses them.
func TestNamesAreApart(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	owner := make(map[string]whose)
	owns := func(name string, by whose) {
		t.Helper()
		if other, taken := owner[name]; taken && other != by {
			t.Fatalf("%q is the name of the %s of prefix %q and of the %s of prefix %q", name,
				other.of, other.prefix, by.of, by.prefix)
		}
		owner[name] = by
	}
	seen := make(map[whose]bool)
	for range 50_000 {
		n := names{prefix: "cg" + piecesOf(random, 2, "{}")}
		k := cacheguard.Key{Cache: piecesOf(random, 3, ""), Key: piecesOf(random, 5, "")}
		if id := (whose{n.prefix, fmt.Sprintf("%q", k)}); seen[id] {
			continue
		} else {
			seen[id] = true
		}
		owns(n.clock(), whose{n.prefix, "clock"})
		owns(n.generations(k.Cache), whose{n.prefix, fmt.Sprintf("generations of %q", k.Cache)})
		owns(n.whole(k.Cache),
			whose{n.prefix, fmt.Sprintf("generation of the whole of %q", k.Cache)})
		permits := n.permits(k.Cache)
		owns(permits, whose{n.prefix, fmt.Sprintf("permits of %q", k.Cache)})
		owns(n.wanted(permits), whose{n.prefix, fmt.Sprintf("wanted permits of %q", k.Cache)})
		const channel = "as a channel, "
		owns(channel+n.channel(), whose{n.prefix, "common channel"})
		owns(channel+n.channelOf(k.Cache), whose{n.prefix, fmt.Sprintf("channel of %q", k.Cache)})
		owns(channel+n.inbox("0123456789abcdef"), whose{n.prefix, "inbox"})
		value := n.value(k)
		for what, name := range map[string]string{
			"value": value, "lease": n.lease(value), "waiters": n.waiters(value),
			"next value": n.next(value),
		} {
			who := whose{n.prefix, fmt.Sprintf("%s of %q", what, k)}
			owns(name, who)
			if got, want := slotOf(name), slotOf(value); got != want {
				t.Fatalf("the %s is in slot %d, its value in slot %d", who.of, got, want)
			}
		}
		if all := n.values(nil,
			[]cacheguard.Key{k, {Cache: k.Cache, Key: "other"}}); all[0] != value {
			t.Fatalf("among others %q is %q, alone %q", k, all[0], value)
		}
		if tag := hashTag(value); tag == value {
			t.Fatalf("the name %q has no hash tag", value)
		}
	}
	if len(seen) < 40_000 {
		t.Errorf("only %d keys were tried", len(seen))
	}
}

// Usual names never change, so that programs of different ages share them. Only the name of a cache
// with a colon is written in another way than before.
func TestNamesThatStay(t *testing.T) {
	for _, c := range []struct{ prefix, cache, key, value string }{
		{"cg", "user", "42", "cg:user:{42}"},
		{"shop:eu", "user", "42", "shop:eu:user:{42}"},
		{"cg", "100%", "a:b", "cg:100%:{a:b}"},
		{"cg", "%3A", "", `cg:%3A:{\}`},
		{"shop", "eu:user", "42", "shop:eu%3Auser::{42}"},
		{"shop", "%3A:", "42", "shop:%253A%3A::{42}"},
	} {
		if got := (names{c.prefix}).value(cacheguard.Key{
			Cache: c.cache, Key: c.key,
		}); got != c.value {
			t.Errorf("%q of cache %q with prefix %q is %q; want %q", c.key, c.cache, c.prefix, got,
				c.value)
		}
	}
	if got := (names{"shop"}).generations("eu:user"); got != "shop:{eu:user}:tags" {
		t.Errorf("the generations stand under %q", got)
	}
}

// FuzzNamesAreApart tries two prefixes, caches and keys with any bytes, except the braces that New
// refuses.
func FuzzNamesAreApart(f *testing.F) {
	f.Add("cg", "a", "k", "cg", "a", "k:lease")
	f.Add("cg", "a", "", "cg", "a", `\`)
	f.Add("cg", "a", "}", "cg", "a", `\}`)
	f.Add("cg", "a:b", "k", "cg", "a", "b:k")
	f.Add("shop", "eu:user", "k", "shop:eu", "user", "k")
	f.Add("shop", "a:", "k", "shop:a", "", "k")
	f.Add("shop", "a:b", "k", "shop", "a%3Ab", "k")
	f.Add("shop:a", "b:", "k", "shop", "a:b:", "k")
	f.Fuzz(func(t *testing.T, prefix1, cache1, key1, prefix2, cache2, key2 string) {
		if strings.ContainsAny(prefix1+prefix2, "{}") {
			t.Skip()
		}
		n1, n2 := names{prefix1}, names{prefix2}
		v1, v2 := n1.value(cacheguard.Key{Cache: cache1, Key: key1}),
			n2.value(cacheguard.Key{Cache: cache2, Key: key2})
		if slotOf(v1) != slotOf(n1.lease(v1)) || slotOf(v1) != slotOf(n1.next(v1)) {
			t.Errorf("%q has names in several slots", key1)
		}
		if prefix1 == prefix2 && cache1 == cache2 && key1 == key2 {
			return
		}
		first := []string{v1, n1.lease(v1), n1.waiters(v1), n1.next(v1)}
		for _, name := range []string{v2, n2.lease(v2), n2.waiters(v2), n2.next(v2)} {
			for _, other := range first {
				if name == other {
					t.Errorf("(%q, %q, %q) and (%q, %q, %q) share the name %q", prefix1, cache1,
						key1, prefix2, cache2, key2, name)
				}
			}
		}
	})
}

// hashTag returns the part of a name that decides its slot, by the rule of the Redis Cluster
// specification.
func hashTag(name string) string {
	_, after, found := strings.Cut(name, "{")
	if !found {
		return name
	}
	tag, _, found := strings.Cut(after, "}")
	if !found || tag == "" {
		return name
	}
	return tag
}

// slotBySpec returns a name's slot: CRC-16 in its XMODEM form, modulo 16384.
func slotBySpec(name string) int {
	var crc uint16
	for _, b := range []byte(hashTag(name)) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}

func TestSlotOf(t *testing.T) {
	for name, want := range map[string]int{
		"": 0, "123456789": 12739, "foo": 12182, "a{foo}b": 12182, "foo{bar}{zap}": 5061,
		"foo{{bar}}zap": 4015,
		"foo{}{bar}":    8363,
	} {
		if got := slotBySpec(name); got != want || slotOf(name) != want {
			t.Errorf("slot of %q is %d, and %d; want %d", name, got, slotOf(name), want)
		}
	}
}
