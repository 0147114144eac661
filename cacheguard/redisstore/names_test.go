package redisstore

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// pieces are what names are made of, and so what keys that want to look like other names are made of.
var pieces = []string{"", "{", "}", "\\", ":", "a", "b", "lease", ":lease", ":v2", "cg", "test", "messages", "clock", "\x00", "\xff", "\r\n"}

func piecesOf(random *rand.Rand, most int, without string) string {
	var b strings.Builder
	for range random.IntN(most + 1) {
		if piece := pieces[random.IntN(len(pieces))]; without == "" || !strings.ContainsAny(piece, without) {
			b.WriteString(piece)
		}
	}
	return b.String()
}

// No two keys share a name of any kind, and no name of a key is one that is common to all.
func TestNamesAreApart(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	n := names{prefix: "cg"}
	owner := map[string]string{n.channel(): "the channel", n.clock(): "the clock"}
	seen := make(map[cacheguard.Key]bool)
	for range 200_000 {
		k := cacheguard.Key{Cache: piecesOf(random, 3, "{}"), Key: piecesOf(random, 5, "")}
		if seen[k] {
			continue
		}
		seen[k] = true
		value := n.value(k)
		for what, name := range map[string]string{"value": value, "lease": n.lease(value), "next value": n.next(value)} {
			who := fmt.Sprintf("%s of %q", what, k)
			if other := owner[name]; other != "" {
				t.Fatalf("%q is the name of the %s and of the %s", name, other, who)
			}
			owner[name] = who
			if got, want := slotOf(name), slotOf(value); got != want {
				t.Fatalf("the %s is in slot %d, its value in slot %d", who, got, want)
			}
		}
		if tag := hashTag(value); tag == value {
			t.Fatalf("the name %q has no hash tag", value)
		}
	}
	if len(seen) < 50_000 {
		t.Errorf("only %d keys were tried", len(seen))
	}
}

// FuzzNamesAreApart has two keys that may be anything; a cache's name has no braces.
func FuzzNamesAreApart(f *testing.F) {
	f.Add("a", "k", "a", "k:lease")
	f.Add("a", "", "a", `\`)
	f.Add("a", "}", "a", `\}`)
	f.Add("a:b", "k", "a", "b:k")
	f.Fuzz(func(t *testing.T, cache1, key1, cache2, key2 string) {
		if strings.ContainsAny(cache1+cache2, "{}") {
			t.Skip()
		}
		n := names{prefix: "cg"}
		v1, v2 := n.value(cacheguard.Key{Cache: cache1, Key: key1}), n.value(cacheguard.Key{Cache: cache2, Key: key2})
		if slotOf(v1) != slotOf(n.lease(v1)) || slotOf(v1) != slotOf(n.next(v1)) {
			t.Errorf("%q has names in several slots", key1)
		}
		if cache1 == cache2 && key1 == key2 {
			return
		}
		first := []string{v1, n.lease(v1), n.next(v1)}
		for _, name := range []string{v2, n.lease(v2), n.next(v2)} {
			for _, other := range first {
				if name == other {
					t.Errorf("(%q, %q) and (%q, %q) share the name %q", cache1, key1, cache2, key2, name)
				}
			}
		}
	})
}

// hashTag is the part of a name that counts for its slot, by the rule of the Redis Cluster specification.
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

// slotBySpec is a name's slot: CRC-16 in its XMODEM form, modulo 16384.
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
		"": 0, "123456789": 12739, "foo": 12182, "a{foo}b": 12182, "foo{bar}{zap}": 5061, "foo{{bar}}zap": 4015,
		"foo{}{bar}": 8363,
	} {
		if got := slotBySpec(name); got != want || slotOf(name) != want {
			t.Errorf("slot of %q is %d, and %d; want %d", name, got, slotOf(name), want)
		}
	}
}
