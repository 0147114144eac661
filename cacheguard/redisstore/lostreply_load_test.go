package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// If the reply to a request for a lease is lost, the process asks again and gets its own lease. The
// leases in this test last longer than any caller waits, so the test would find a process that
// waited for itself.
func TestLostReplyOfLease(t *testing.T) {
	t.Parallel()
	onBothWires(t, func(t *testing.T, f *wired) {
		o := newOrigin("v")
		letGo := o.hold()
		lost := f.loseReply(redisstore.LeaseScript)
		mine := f.first.ask(t, 5, "k", o.load)
		waittest.Next(t, "the reply is lost", lost.Struck())
		others := f.othersAsk(t, "k", o.load)
		waittest.Next(t, "the first replica loads", o.began)
		letGo()
		mine.got(t, "v")
		others.got(t, "v")
		o.loaded(t, 1)
		if n := f.first.events.of(cacheguard.EventLoad); n != 1 {
			t.Errorf("the replica that was granted the lease did %d loads; want the one", n)
		}
		f.stored(t)
		f.hits(t, "k", "v")
		figures(t, "reply of lease lost", o.loads.Load(), 0,
			append(mine.answers, others.wait(t)...)...)
	})
}

// If the reply is lost and another process has the lease, the second reply says nothing about the
// asker's own token.
func TestLostReplyOfHeldLease(t *testing.T) {
	t.Parallel()
	onBothWires(t, func(t *testing.T, f *wired) {
		o := newOrigin("v")
		letGo := o.hold()
		theirs := f.second.ask(t, 5, "k", o.load)
		waittest.Next(t, "the second replica loads", o.began)
		lost := f.loseReply(redisstore.LeaseScript)
		mine := f.first.ask(t, 5, "k", o.load)
		waittest.Next(t, "the reply is lost", lost.Struck())
		f.first.waits(t)
		letGo()
		mine.got(t, "v")
		theirs.got(t, "v")
		o.loaded(t, 1)
		f.hits(t, "k", "v")
	})
}

// If the reply to a fill is lost, the repeated fill is recognised. The value is stored once, and
// reported as stored.
func TestLostReplyOfFill(t *testing.T) {
	t.Parallel()
	onBothWires(t, func(t *testing.T, f *wired) {
		o := newOrigin("v")
		letGo := o.hold()
		lost := f.loseReply(redisstore.FillScript)
		mine := f.first.ask(t, 5, "k", o.load)
		waittest.Next(t, "the first replica loads", o.began)
		others := f.othersAsk(t, "k", o.load)
		letGo()
		waittest.Next(t, "the reply is lost", lost.Struck())
		others.got(t, "v")
		mine.got(t, "v")
		o.loaded(t, 1)
		f.stored(t)
		f.hits(t, "k", "v")
		if told := f.messages.awaits(t, cacheguard.MessageFilled, "k"); len(told) != 1 {
			t.Errorf("those who waited were told %d times; want once", len(told))
		}
		figures(t, "reply of fill lost", o.loads.Load(), 0,
			append(mine.answers, others.wait(t)...)...)
	})
}

// stored checks that the first replica reported its load as stored, and nothing else.
func (f *wired) stored(t *testing.T) {
	t.Helper()
	for kind, want := range map[cacheguard.EventKind]int{
		cacheguard.EventFilled: 1, cacheguard.EventFillRefused: 0, cacheguard.EventFillUnknown: 0,
		cacheguard.EventLeaseLost: 0, cacheguard.EventStoreError: 0,
	} {
		if got := f.first.events.of(kind); got != want {
			t.Errorf("event %v was seen %d times; want %d", kind, got, want)
		}
	}
}

// If a key is invalidated between a fill and its repetition, the value doesn't come back, although
// the repetition belongs to the load itself.
func TestLostReplyOfFillThenInvalidated(t *testing.T) {
	t.Parallel()
	onBothWires(t, func(t *testing.T, f *wired) {
		ctx := t.Context()
		o := newOrigin("old")
		gate := make(chan struct{})
		lost := f.loseReply(redisstore.FillScript)
		again := f.proxy.DelayCommand(redistest.IsEval(redisstore.FillScript), gate)
		mine := f.first.ask(t, 1, "k", o.load)
		waittest.Next(t, "the reply is lost", lost.Struck())
		waittest.Next(t, "the fill comes again", again.Struck())
		must(t, f.second.cache.Invalidate(ctx, "k"))
		close(gate)
		mine.got(t, "old")
		if err := f.second.rdb.Get(ctx, f.first.valueName("k")).Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("reading the invalidated value gave %v; want none", err)
		}
		o.set("new", nil)
		f.third.get(t, "k", o.load).is(t, "new")
		o.loaded(t, 2)
		f.hits(t, "k", "new")
	})
}

// The failure of a load is told to all processes that wait, however often the message about its end
// has to be repeated, and nobody repeats the load.
func TestLostReplyOfConclude(t *testing.T) {
	t.Parallel()
	down := errors.New("the origin is down")
	onBothWires(t, func(t *testing.T, f *wired) {
		o := newOrigin("")
		o.set("", down)
		letGo := o.hold()
		lost := f.loseReply(redisstore.ConcludeScript)
		mine := f.first.ask(t, 5, "k", o.load)
		waittest.Next(t, "the first replica loads", o.began)
		others := f.othersAsk(t, "k", o.load)
		mine.arrived.Wait()
		letGo()
		waittest.Next(t, "the reply is lost", lost.Struck())
		for _, a := range others.wait(t) {
			var remote *cacheguard.LoadError
			if !errors.As(a.err, &remote) || !strings.Contains(remote.Text, down.Error()) {
				t.Errorf("a caller in another replica got %v; want a LoadError that says %q", a.err,
					down)
			}
		}
		for _, a := range mine.wait(t) {
			if !errors.Is(a.err, down) {
				t.Errorf("a caller got %v; want %v", a.err, down)
			}
		}
		o.loaded(t, 1)
		if told := f.messages.awaits(t, cacheguard.MessageOutcome, "k"); len(told) != 1 {
			t.Errorf("those who waited were told %d times; want once", len(told))
		}
		// The failed load leaves nothing that would hold up the next load: only callers that waited
		// for the failed load get its error.
		o.set("v", nil)
		f.second.get(t, "k", o.load).is(t, "v")
		o.loaded(t, 2)
	}, func(s *site) { s.cache.ErrorTTL = -1 })
}

// If a load is given up because its callers have left, it gives its lease back, and processes that
// wait load themselves.
func TestLostReplyOfRelease(t *testing.T) {
	t.Parallel()
	onBothWires(t, func(t *testing.T, f *wired) {
		given := newOrigin("never")
		given.hold()
		o := newOrigin("v")
		lost := f.loseReply(redisstore.ReleaseScript)
		mine := f.first.ask(t, 1, "k", given.load)
		waittest.Next(t, "the first replica loads", given.began)
		others := f.othersAsk(t, "k", o.load)
		mine.leave()
		waittest.Next(t, "the reply is lost", lost.Struck())
		others.got(t, "v")
		if err := mine.wait(t)[0].err; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that left got %v; want %v", err, context.Canceled)
		}
		o.loaded(t, 1)
		f.hits(t, "k", "v")
	})
}
