package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// A client of a cluster, and a client of an unknown type, doesn't read generations with every
// value. It uses the generations that it knows only if messages have arrived without a break since
// it read them.

// toldOfTags calls do, which invalidates, and returns when the replica has acted on this
// invalidation. It ignores messages with these forged generations. The messages of two nodes of a
// cluster may overtake one another, so that an older message may come after that of do.
func (r *replica) toldOfTags(t *testing.T, do func(), forged ...string) {
	t.Helper()
	told := make(chan struct{}, 100)
	// This listener is called after the cache's.
	stop := r.store.Listen("test", func(m cacheguard.Message) {
		if m.Kind == cacheguard.MessageTags &&
			!slices.Contains(forged, fmt.Sprintf("%016d", m.Generation)) {
			told <- struct{}{}
		}
	})
	defer stop()
	do()
	waittest.Next(t, "the message of an invalidation by tag", told)
}

func TestGenerationsAreKnownWhileMessagesArrive(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for how, bump := range bumps {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			prefix, messages := newPrefix(), redistest.StartProxy(t, server.Addr())
			r := newReplica(t, "", prefix, func(s *site) {
				s.rdb = apart{newClient(t, server.Addr()), defaultClient(t, messages.Addr())}
			})
			other := newReplica(t, server.Addr(), prefix)
			other.listens(t)
			next := 0
			invalidated := func(when string) {
				t.Helper()
				next++
				o := newOrigin(fmt.Sprint("v", next))
				must(t, bump(t.Context(), other.cache))
				for range 3 {
					if a := r.getEntry(t, "k", o.tagged("t")); a.res.Value != o.value ||
						a.err != nil {
						t.Fatalf("%s: got %q, %v, want %q", when, a.res.Value, a.err, o.value)
					}
				}
				other.getEntry(t, "k", o.tagged("t")).hit(t, o.value)
				o.loaded(t, 1)
			}
			// This process has never listened, because it has never waited.
			other.getEntry(t, "k", newOrigin("v0").tagged("t")).is(t, "v0")
			must(t, messages.Refuse(true))
			r.getEntry(t, "k", notTagged(t)).hit(t, "v0")
			invalidated("a process that hasn't listened yet")

			must(t, messages.Refuse(false))
			r.listens(t)
			r.getEntry(t, "k", notTagged(t)).hit(t, "v1")
			r.toldOfTags(t, func() { must(t, bump(t.Context(), other.cache)) })
			r.getEntry(t, "k", newOrigin("told").tagged("t")).is(t, "told")
			r.getEntry(t, "k", notTagged(t)).hit(t, "told")

			must(t, messages.Refuse(true))
			messages.Cut()
			waittest.Until(t, "it is noticed that messages don't arrive", func() bool {
				return !r.store.Listening()
			})
			invalidated("messages don't arrive")
			must(t, messages.Refuse(false))
			waittest.Until(t, "messages arrive again", r.store.Listening)
			for range 2 {
				r.getEntry(t, "k", notTagged(t)).hit(t, fmt.Sprint("v", next))
			}
			r.toldOfTags(t, func() { must(t, bump(t.Context(), other.cache)) })
			r.getEntry(t, "k", newOrigin("last").tagged("t")).is(t, "last")
		})
	}
}

// If a message about an invalidation comes while the answer to a read is on its way, the answer
// isn't used for later reads.
func TestGenerationsReadBeforeAMessage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for how, bump := range bumps {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			prefix, p := newPrefix(), redistest.StartProxy(t, server.Addr())
			r := newReplica(t, "", prefix, func(s *site) {
				s.rdb = apart{newClient(t, p.Addr()), defaultClient(t, server.Addr())}
			})
			other := newReplica(t, server.Addr(), prefix)
			other.listens(t)
			r.listens(t)
			for n := range 3 {
				key, tag := fmt.Sprint("k", n), "t"
				other.getEntry(t, key, newOrigin("old").tagged(tag)).is(t, "old")
				answer := make(chan struct{})
				late := p.DelayReply(redistest.IsEval(redisstore.GenerationsScript), answer)
				first := r.calls(t, key, newOrigin("new").tagged(tag))
				if n == 0 { // later the generations are known, and nobody reads them
					waittest.Next(t, "generations are read", late.Struck())
				}
				r.toldOfTags(t, func() { must(t, bump(t.Context(), other.cache)) })
				close(answer)
				first()
				late.Disarm()
				o := newOrigin("new")
				r.getEntry(t, key, o.tagged(tag)).is(t, "new")
			}
		})
	}
}

// If the node with the generations is away, the cluster goes on: values are served, and others are
// loaded and stored. When the node is back, invalidations work.
func TestClusterLosesGenerations(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	ctx, cancel := context.WithTimeout(t.Context(), 24*patience)
	defer cancel()
	masterOf := func(name string) string {
		master, err := c.Master(ctx, name)
		must(t, err)
		return master
	}
	prefix := newPrefix()
	join := func() *replica {
		return newReplica(t, "", prefix, func(s *site) {
			s.rdb, s.store.OpTimeout = clusterClient(t, c.Addrs()...), lossTime
		})
	}
	a, b := join(), join()
	a.listens(t)
	b.listens(t)
	dead := masterOf(a.generations())
	for dead == masterOf(redisstore.Channel(prefix)) ||
		dead == masterOf(redisstore.ClockName(prefix)) {
		prefix = newPrefix()
		a, b = join(), join()
		a.listens(t)
		b.listens(t)
		dead = masterOf(a.generations())
	}
	keyOf := func() string {
		key := newPrefix()
		for masterOf(a.valueName(key)) == dead {
			key = newPrefix()
		}
		return key
	}
	tagged, plain := keyOf(), keyOf()
	a.getEntry(t, tagged, newOrigin("v").tagged("t")).is(t, "v")
	a.getEntry(t, plain, newOrigin("v").tagged()).is(t, "v")
	for _, r := range []*replica{a, b} {
		r.getEntry(t, tagged, notTagged(t)).hit(t, "v")
		r.getEntry(t, plain, notTagged(t)).hit(t, "v")
	}
	c.Node(dead).Kill()
	late := join()
	for _, r := range []*replica{a, b, late} {
		for range 3 {
			r.getEntry(t, plain, notTagged(t)).hit(t, "v")
			if r != late { // late doesn't know the generations
				r.getEntry(t, tagged, notTagged(t)).hit(t, "v")
			}
			key := keyOf()
			o := newOrigin("w")
			r.getEntry(t, key, o.tagged()).is(t, "w")
			a.getEntry(t, key, notTagged(t)).hit(t, "w")
			o.loaded(t, 1)
		}
	}
	if err := b.cache.InvalidateTags(ctx, "t"); err == nil {
		t.Error("an invalidation that went nowhere was none that failed")
	}
	if res, err := b.cache.Peek(ctx, tagged); err != nil || res.Status != cacheguard.StatusMiss {
		t.Errorf("the process that knows better found %+v, %v", res, err)
	}

	must(t, c.Node(dead).Restart()) // it restarts empty
	must(t, c.AwaitWhole(ctx))
	waittest.Until(t, "the generations are there again", func() bool {
		return b.cache.InvalidateTags(ctx, "t") == nil
	})
	for n, r := range []*replica{a, b, late} {
		want := fmt.Sprint("new", n)
		waittest.Until(t, "a load counts", func() bool {
			r.getEntry(t, tagged, newOrigin(want).tagged("t"))
			res, err := r.cache.Peek(ctx, tagged)
			return err == nil && res.Status == cacheguard.StatusHit && res.Value != "v"
		})

		must(t, r.cache.InvalidateTags(ctx, "t"))
		if res, err := r.cache.Peek(ctx, tagged); err != nil ||
			res.Status != cacheguard.StatusMiss {
			t.Errorf("after an invalidation %+v, %v", res, err)
		}
	}
}
