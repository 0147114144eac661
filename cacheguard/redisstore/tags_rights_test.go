package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// restricted returns two replicas. The first one's user has the documented rights, without those
// that change takes away.
func restricted(t *testing.T, change ...any) (admin *redis.Client, r, free *replica) {
	t.Helper()
	server := redistest.Start(t)
	admin = newClient(t, server.Addr())
	prefix := newPrefix()
	rdb := newUser(t, admin, named(prefix, change...)...)
	r, free = newReplica(t, "", prefix, func(s *site) { s.rdb = rdb }),
		newReplica(t, server.Addr(), prefix)
	r.listens(t)
	free.listens(t)
	return admin, r, free
}

// The documented rights are sufficient for tags and marks, whatever has happened to the
// generations.
func TestTagsNeedNoMoreRights(t *testing.T) {
	t.Parallel()
	admin, r, _ := restricted(t)
	for n, harm := range []func() error{
		func() error { return nil },
		func() error { return admin.Del(t.Context(), r.generations()).Err() },
		func() error { return admin.Set(t.Context(), r.generations(), "x", 0).Err() },
	} {
		for how, bump := range bumps {
			o := newOrigin(fmt.Sprint(how, n))
			r.getEntry(t, "k", o.tagged("t")).is(t, o.value)
			r.getEntry(t, "k", notTagged(t)).hit(t, o.value)
			must(t, harm())
			must(t, bump(t.Context(), r.cache))
			must(t,
				r.cache.SetEntry(t.Context(), "k",
					cacheguard.Entry[string]{Value: "set", Tags: []string{"t"}}))
			must(t, r.cache.MarkStale(t.Context(), "k"))
			must(t, harm())
			_, err := r.cache.GetMany(t.Context(), []string{"k", "l"}, func(
				context.Context, []string,
			) (map[string]string, error) {
				return map[string]string{"k": "v", "l": "v"}, nil
			})
			must(t, err)
			must(t, r.cache.InvalidateAll(t.Context()))
		}
	}
	refused, err := admin.Do(t.Context(), "ACL", "LOG").Slice()
	must(t, err)
	for _, entry := range refused {
		if said := fmt.Sprint(entry); !strings.Contains(said, "client") {
			t.Errorf("something was refused: %s", said)
		}
	}
	if lines := r.log.With("lacks"); len(lines) > 0 {
		t.Errorf("the log says %q", lines)
	}
}

// The log names a missing right. If one user lacks a right, the others still get their values.
func TestNoRightForTags(t *testing.T) {
	t.Parallel()
	for right, missing := range map[string]struct {
		reads, logs, bumps bool // reads are hits; the log names the right; the error does
	}{
		"zmscore":          {reads: true, logs: true},
		"zadd":             {reads: true, bumps: true},
		"zscore":           {reads: true},
		"zrange":           {reads: true},
		"zcard":            {reads: true, bumps: true},
		"zremrangebyscore": {reads: true, bumps: true},
		"zmscore -zscore":  {logs: true},
	} {
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			var change []any
			for _, word := range strings.Fields("-" + right) {
				change = append(change, word)
			}
			_, r, free := restricted(t, change...)
			load := newOrigin("v")
			free.getEntry(t, "k", load.tagged("t")).is(t, "v")
			for range 5 {
				if missing.reads {
					r.getEntry(t, "k", notTagged(t)).hit(t, "v")
				} else {
					a := r.getEntry(t, "k", newOrigin("v").tagged())
					a.is(t, "v")
					if !a.res.Degraded {
						t.Error("a caller who was served without Redis wasn't told so")
					}
				}
				free.getEntry(t, "k", notTagged(t)).hit(t, "v")
			}
			words := strings.Fields(right)
			name := strings.TrimPrefix(words[len(words)-1], "-")
			if lines := r.log.With("lacks +" + name); (len(lines) > 0) != missing.logs ||
				len(lines) > 1 {
				t.Errorf("the log names the right in %d lines, want one: %v: %q", len(lines),
					missing.logs, r.log.With())
			}
			err := r.cache.InvalidateTags(t.Context(), "t")
			if missing.bumps && (err == nil || !strings.Contains(err.Error(), "lacks +"+name)) {
				t.Errorf("InvalidateTags gave %v", err)
			}
			if !missing.bumps {
				must(t, err)
				o := newOrigin("new")
				free.getEntry(t, "k", o.tagged("t")).is(t, "new")
				o.loaded(t, 1)
			}
		})
	}
}
