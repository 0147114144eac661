package coretest_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// hashed is what a key of more than 512 bytes is in the store.
func hashed(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "#sha256:" + hex.EncodeToString(sum[:])
}

func strangeKeys() []string {
	long := strings.Repeat("k", 10000)
	keys := []string{
		"", " ", "k", "K", "{", "}", "{}", "}{", "a}b", "\r\n", "\x00", "\x00\x00", "\xff", "é",
		":", "k:lease", ":lease",
		long, long + "k", long[:512], long[:513], long[:512] + "l",
		"#sha256:", "#sha256", "#sha256:" + strings.Repeat("0", 64),
	}
	// What an attacker would ask for who wants to be given what another key has.
	return append(keys, hashed(long), hashed(hashed(long)), hashed("k"), hashed("#sha256:"))
}

// TestNoTwoKeysAreOne in the store, and each is found under the same one again.
func TestNoTwoKeysAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		here, there := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		owner := map[string]string{}
		for _, key := range strangeKeys() {
			if _, err := here.Peek(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			id := store.asked()
			if id.Cache != "behave" || len(id.Key) > 512 {
				t.Errorf("key %.20q is %+v in the store", key, id)
			}
			if other, taken := owner[id.Key]; taken {
				t.Errorf("keys %.20q and %.20q are one in the store", key, other)
			}
			owner[id.Key] = key
			if _, err := there.Peek(t.Context(), key); err != nil || store.asked() != id {
				t.Errorf("key %.20q is %v and %v", key, id, store.asked())
			}
		}
	})
}

// TestAnyKeyWorks with every verb.
func TestAnyKeyWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		keys := strangeKeys()
		for _, key := range keys {
			getting(t.Context(), t, here, key, returning("value of "+key)).gives("value of "+key,
				nil)
		}
		for _, key := range keys {
			getting(t.Context(), t, there, key, returning("unexpected")).gives("value of "+key, nil)
			if _, err := there.Update(t.Context(), key, returning("updated")); err != nil {
				t.Errorf("Update of %.20q: %v", key, err)
			}
			getting(t.Context(), t, here, key, returning("unexpected")).gives("updated", nil)
			if err := here.Set(t.Context(), key, "set"); err != nil {
				t.Errorf("Set of %.20q: %v", key, err)
			}
			getting(t.Context(), t, there, key, returning("unexpected")).gives("set", nil)
		}
		if err := here.Invalidate(t.Context(), keys...); err != nil {
			t.Errorf("Invalidate: %v", err)
		}
		for _, key := range keys {
			getting(t.Context(), t, there, key, returning("again")).gives("again", nil)
		}
		failing := strings.Repeat("long", 1000)
		getting(t.Context(), t, here, failing, failingWith[string](errOrigin)).gives("", errOrigin)
		_, err := getting(t.Context(), t, there, failing, returning("unexpected")).now()
		if failed, ok := err.(*cacheguard.LoadError); !ok || failed.Key != failing {
			t.Errorf("a LoadError doesn't have the key as its caller gave it: %v", err)
		}
	})
}

// TestCachesAreApart: the same key in another cache is another one, also if the names run into each
// other.
func TestCachesAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		for _, name := range []string{"a", "a:b", "b", "A"} {
			c := openOn(t, store, cacheguard.Options[string]{Name: name})
			for _, key := range []string{"k", "b:k", ":k", ""} {
				getting(t.Context(), t, c, key, returning(name+"/"+key)).gives(name+"/"+key, nil)
			}
		}
	})
}
