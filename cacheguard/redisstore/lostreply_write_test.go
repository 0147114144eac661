package redisstore_test

import (
	"context"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

func TestLostReplyOfSet(t *testing.T) {
	t.Parallel()
	for name, script := range stepsOfSet {
		t.Run(name, func(t *testing.T) {
			onBothWires(t, func(t *testing.T, f *wired) {
				lost := f.loseReply(script)
				must(t, f.first.cache.Set(t.Context(), "k", "v"))
				waittest.Next(t, "the reply is lost", lost.Struck())
				f.hits(t, "k", "v")
			})
		})
	}
}

// stepsOfSet are the scripts of a Set.
var stepsOfSet = map[string]string{"claim": redisstore.ClaimScript, "fill": redisstore.FillScript}

// If a copy of a step of Set arrives late, after the next Set or an Invalidate of the same writer,
// it brings nothing back.
func TestLateCopyOfSet(t *testing.T) {
	t.Parallel()
	for name, script := range stepsOfSet {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := redistest.StartProxy(t, server.Addr())
			r := newReplica(t, p.Addr(), newPrefix(), func(s *site) {
				s.store.OpTimeout = redialTime
			})
			for what, next := range map[string]func() error{
				"set":        func() error { return r.cache.Set(t.Context(), "k", "new") },
				"invalidate": func() error { return r.cache.Invalidate(t.Context(), "k") },
			} {
				late := p.HoldBack(redistest.IsEval(script))
				must(t, r.cache.Set(t.Context(), "k", "old"))
				must(t, next())
				_, err := late.Release(t.Context())
				must(t, err)
				if res, err := r.cache.Peek(t.Context(), "k"); err != nil || res.Value == "old" {
					t.Errorf("after a late copy, behind a %s: %+v, %v", what, res, err)
				}
			}
		})
	}
}

// A Set ends a load that runs at the same time, also when the reply to the Set is lost.
func TestLostReplyOfSetDuringLoad(t *testing.T) {
	t.Parallel()
	onBothWires(t, func(t *testing.T, f *wired) {
		o := newOrigin("old")
		letGo := o.hold()
		theirs := f.second.ask(t, 1, "k", o.load)
		waittest.Next(t, "the second replica loads", o.began)
		lost := f.loseReply(redisstore.FillScript)
		must(t, f.first.cache.Set(t.Context(), "k", "set"))
		waittest.Next(t, "the reply is lost", lost.Struck())
		letGo()
		theirs.got(t, "old") // they asked before the Set
		f.hits(t, "k", "set")
	})
}

func TestLostReplyOfInvalidate(t *testing.T) {
	t.Parallel()
	onBothWires(t, func(t *testing.T, f *wired) {
		must(t, f.second.cache.Set(t.Context(), "k", "old"))
		f.first.get(t, "k", mustNotLoad(t)).hit(t, "old")
		lost := f.loseReply(redisstore.InvalidateScript)
		must(t, f.first.cache.Invalidate(t.Context(), "k"))
		waittest.Next(t, "the reply is lost", lost.Struck())
		o := newOrigin("new")
		f.third.get(t, "k", o.load).is(t, "new")
		f.hits(t, "k", "new")
		o.loaded(t, 1)
	})
}

// Many keys are sent in a pipeline. The test loses the reply to one key in the middle. If the
// connection falls silent, all later replies are lost, too.
func TestLostReplyOfInvalidateMany(t *testing.T) {
	t.Parallel()
	onBothWires(t, func(t *testing.T, f *wired) {
		keys := []string{"a", "b", "c", "d"}
		for _, k := range keys {
			must(t, f.second.cache.Set(t.Context(), k, "old"))
		}
		lost := f.proxy.DropReply(redistest.All(
			redistest.IsEval(redisstore.InvalidateScript), redistest.HasKey(f.first.valueName("c")),
		), f.then)
		must(t, f.first.cache.Invalidate(t.Context(), keys...))
		waittest.Next(t, "the reply is lost", lost.Struck())
		for _, k := range keys {
			res, err := f.third.cache.Peek(t.Context(), k)
			if must(t, err); res.Status != cacheguard.StatusMiss {
				t.Errorf("%s is still there: %v", k, res)
			}
		}
	})
}

// If the reply to a claim is lost, the repeated claim is the same claim: the write runs once, its
// value is stored, and readers wait for it.
func TestLostReplyOfClaim(t *testing.T) {
	t.Parallel()
	onBothWires(t, func(t *testing.T, f *wired) {
		must(t, f.second.cache.Set(t.Context(), "k", "old"))
		origin := newOrigin("written")
		letGo := origin.hold()
		lost := f.loseReply(redisstore.ClaimScript)
		updated := make(chan answer, 1)
		go func() {
			v, err := f.first.cache.Update(context.Background(), "k", origin.load)
			updated <- answer{res: cacheguard.Result[string]{Value: v}, err: err}
		}()
		waittest.Next(t, "the reply is lost", lost.Struck())
		readers := f.othersAsk(t, "k", mustNotLoad(t))
		waittest.Next(t, "the write runs", origin.began)
		letGo()
		readers.got(t, "written")
		select {
		case a := <-updated:
			a.is(t, "written")
		case <-t.Context().Done():
		}
		origin.loaded(t, 1)
		f.hits(t, "k", "written")
	})
}

// The fill of an Update is repeated like any other fill. If the repetition were taken for a refused
// fill, the value would be invalidated.
func TestLostReplyOfUpdatesFill(t *testing.T) {
	t.Parallel()
	onBothWires(t, func(t *testing.T, f *wired) {
		origin := newOrigin("written")
		lost := f.loseReply(redisstore.FillScript)
		v, err := f.first.cache.Update(t.Context(), "k", origin.load)
		answer{res: cacheguard.Result[string]{Value: v}, err: err}.is(t, "written")
		waittest.Next(t, "the reply is lost", lost.Struck())
		origin.loaded(t, 1)
		f.hits(t, "k", "written")
		if told := f.messages.awaits(t, cacheguard.MessageChanged, "k"); len(told) != 1 {
			t.Errorf("the key was told to have changed %d times; want once, by the claim",
				len(told))
		}
	})
}
