package fuzztest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// askedStore remembers the key of the last read.
type askedStore struct {
	*memstore.Store
	asked cacheguard.Key
}

func (s *askedStore) Get(
	ctx context.Context, k cacheguard.Key, tags []string,
) ([]byte, cacheguard.Generations, error) {
	s.asked = k
	return s.Store.Get(ctx, k, tags)
}

// hashed is what a key of more than 512 bytes is in the store.
func hashed(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "#sha256:" + hex.EncodeToString(sum[:])
}

// FuzzKeys shows that two keys are the same key in the store exactly if their bytes are equal.
func FuzzKeys(f *testing.F) {
	long := strings.Repeat("k", 10000)
	keys := []string{
		"", " ", "k", "K", "{", "}", "{}", "}{", "a}b", "\r\n", "\x00", "\x00\x00", "\xff", "é",
		":", "k:lease", ":lease",
		long, long + "k", long[:512], long[:513], long[:512] + "l",
		"#sha256:", "#sha256", "#sha256:" + strings.Repeat("0", 64),
		// An attacker who wants the value of another key would ask for these.
		hashed(long), hashed(hashed(long)), hashed("k"), hashed("#sha256:"),
	}
	for i, key := range keys {
		f.Add([]byte(key), []byte(keys[(i+1)%len(keys)]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		store := &askedStore{Store: memstore.New(memstore.Options{})}
		c, err := cacheguard.New(store,
			cacheguard.Options[string]{Name: "fuzz", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ids := make([]string, 2)
		for i, key := range [][]byte{a, b} {
			if _, err := c.Peek(t.Context(), string(key)); err != nil {
				t.Fatal(err)
			}
			ids[i] = store.asked.Key
		}
		if (ids[0] == ids[1]) != bytes.Equal(a, b) {
			t.Errorf("keys %q and %q are %q and %q in the store", a, b, ids[0], ids[1])
		}
	})
}
