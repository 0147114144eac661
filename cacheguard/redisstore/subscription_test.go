package redisstore_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// apart is a client whose subscriptions use another connection path than its commands, so that a
// test can disturb one of the two.
type apart struct {
	redis.UniversalClient
	subscriptions redis.UniversalClient
}

func (c apart) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return c.subscriptions.Subscribe(ctx, channels...)
}

// earshot is a fleet of two replicas. The messages to the second replica pass through a proxy.
type earshot struct {
	*wired
	messages *redistest.Proxy
}

func newEarshot(t *testing.T, change ...func(*site)) earshot {
	t.Helper()
	server := redistest.Start(t)
	messages := redistest.StartProxy(t, server.Addr())
	prefix := newPrefix()
	f := &wired{first: newReplica(t, server.Addr(), prefix, change...)}
	f.second = newReplica(t, server.Addr(), prefix, append(change, func(s *site) {
		s.rdb = apart{newClient(t, server.Addr()), defaultClient(t, messages.Addr())}
	})...)
	f.third = f.second
	f.first.listens(t)
	f.second.listens(t)
	return earshot{f, messages}
}

// loads lets the first replica load "k" for a few callers until letGo is called, and the second
// replica wait for this load.
func (f earshot) loads(t *testing.T) (o *origin, letGo func(), mine, theirs *crowd) {
	t.Helper()
	o = newOrigin("v")
	letGo = o.hold()
	mine = f.first.ask(t, 3, "k", o.load)
	waittest.Next(t, "the first replica loads", o.began)
	theirs = f.second.ask(t, 3, "k", o.load)
	f.second.waits(t)
	return o, letGo, mine, theirs
}

// If a waiting process loses its connection, it looks again when the connection is restored, and
// finds the result that it wasn't told of. The lease in this test lasts longer than any caller
// waits.
func TestSubscriptionCut(t *testing.T) {
	t.Parallel()
	f := newEarshot(t)
	o, letGo, mine, theirs := f.loads(t)

	said := f.second.log.Count("messages don't arrive")
	must(t, f.messages.Refuse(true))
	f.messages.Cut()
	waittest.Until(t, "the break is noticed", func() bool { return !f.second.store.Listening() })
	letGo()
	mine.got(t, "v") // the value is stored, and the process without a connection wasn't told
	f.second.log.Await(t, said+1, "messages don't arrive")
	must(t, f.messages.Refuse(false))
	restored := time.Now()
	theirs.got(t, "v")
	o.loaded(t, 1)
	waittest.Until(t, "messages arrive again", f.second.store.Listening)
	figures(t, "subscription cut during a load (waits are the cut's)", o.loads.Load(),
		time.Since(restored), theirs.answers...)
	f.second.log.Await(t, said+1, "messages arrive again")
	f.serves(t)
}

// If a waiting process can't get messages any more, it asks from time to time as long as messages
// don't arrive. The lease in this test lasts longer than any caller waits, too.
func TestSubscriptionGone(t *testing.T) {
	t.Parallel()
	f := newEarshot(t)
	o, letGo, mine, theirs := f.loads(t)

	must(t, f.messages.Refuse(true))
	f.messages.Cut()
	waittest.Until(t, "the break is noticed", func() bool { return !f.second.store.Listening() })
	letGo()
	mine.got(t, "v")
	theirs.got(t, "v")
	o.loaded(t, 1)
}

// The connection is cut during a load that goes on. The waiting process looks again, learns that it
// must wait again, and then gets the result by message.
func TestSubscriptionCutAndRestored(t *testing.T) {
	t.Parallel()
	f := newEarshot(t)
	o, letGo, mine, theirs := f.loads(t)
	held := f.second.store.told(cacheguard.LeaseHeld)
	f.messages.Cut()
	waittest.Until(t, "the waiter has looked again", func() bool {
		return f.second.store.Listening() && f.second.store.told(cacheguard.LeaseHeld) > held
	})

	letGo()
	mine.got(t, "v")
	theirs.got(t, "v")
	o.loaded(t, 1)
}

// If nothing comes over a connection any more, although nobody closed it, the store treats it as
// broken within two seconds.
func TestSubscriptionHalfOpen(t *testing.T) {
	t.Parallel()
	f := newEarshot(t)
	o, letGo, mine, theirs := f.loads(t)

	f.messages.Blackhole(true)
	began := time.Now()
	waittest.Until(t, "the half-open connection is noticed", func() bool {
		return !f.second.store.Listening()
	})
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("a half-open connection was noticed after %v; want 2s and what a busy machine needs",
			took)
	}
	letGo()
	mine.got(t, "v")
	f.messages.Cut() // messages to the old connection are lost
	f.messages.Blackhole(false)
	healed := time.Now()
	theirs.got(t, "v")
	o.loaded(t, 1)
	figures(t, "subscription half-open during a load (waits are the hole's)", o.loads.Load(),
		time.Since(healed), theirs.answers...)
	f.serves(t)
}

// A connection without messages stays. If the machine stands still for a while, the connection may
// be replaced, so the test may try again.
func TestSubscriptionQuiet(t *testing.T) {
	t.Parallel()
	const tries = 5
	for range tries {
		f := newEarshot(t)
		waittest.Until(t, "the quiet connection is tried", func() bool {
			return f.messages.Counts()["PING"] >= 3
		})
		if f.messages.Counts()["SUBSCRIBE"] == 1 && f.second.log.Count() == 0 {
			return
		}
	}
	t.Errorf("a connection without messages was made anew in each of %d trials", tries)
}

var errDown = errors.New("the origin is down")

// While a node of a cluster is asked for the masters and doesn't answer, messages from the other
// nodes arrive, and the local tier obeys them.
func TestMastersAnswerLate(t *testing.T) {
	t.Parallel()
	addr := redistest.StartCluster(t, 1, 0).Addrs()[0]
	var late atomic.Bool // the answer comes when the gate is opened
	asked, gate := make(chan struct{}, 1), make(chan struct{})
	prefix := newPrefix()
	r := newReplica(t, "", prefix, func(s *site) {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				if late.Load() {
					select {
					case asked <- struct{}{}:
					default:
					}
					<-gate
				}
				node := redis.ClusterNode{Addr: addr}
				return []redis.ClusterSlot{
					{Start: 0, End: 16383, Nodes: []redis.ClusterNode{node}},
				}, nil
			},
		})
		t.Cleanup(func() { _ = rdb.Close() })
		s.rdb, s.cache.Local = rdb, cacheguard.Local[string]{Entries: 10, TTL: time.Hour}
	})
	t.Cleanup(func() { close(gate) })
	other := newReplica(t, "", prefix, func(s *site) { s.rdb = clusterClient(t, addr) })
	r.listens(t)
	r.get(t, "k", newOrigin("v").load).is(t, "v")
	if a := r.get(t, "k", mustNotLoad(t)); !a.res.Local {
		t.Fatal("the value is not in the local tier")
	}

	late.Store(true)
	must(t, r.cache.Set(t.Context(), "another", "v")) // a failover could lose it
	waittest.Next(t, "a node is asked for the masters", asked)
	must(t, other.cache.Invalidate(t.Context(), "k"))
	o := newOrigin("w")
	waittest.Until(t, "the invalidation arrives", func() bool {
		return r.get(t, "k", o.load).res.Value == "w"
	})
}

// If a message is lost on a connection that seems whole, this costs the rest of the lease, and no
// load.
func TestMessageLost(t *testing.T) {
	t.Parallel()
	const lease = 5 * time.Second
	for what, fail := range map[string]error{"fill": nil, "outcome": errDown} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newEarshot(t, func(s *site) {
				// A failure's record lasts longer than the lease, so those who wait still find it
				// when they ask.
				s.cache.LeaseTTL, s.cache.ErrorTTL = lease, lease-time.Second/2
			})
			o := newOrigin("v")
			o.set("v", fail)
			letGo := o.hold()
			mine := f.first.ask(t, 1, what, o.load)
			waittest.Next(t, "the first replica loads", o.began)
			theirs := f.second.ask(t, 3, what, o.load)
			f.second.waits(t)
			theirs.arrived.Wait()
			// The lease records whether a process waits. Without this mark nobody is told.
			must(t, f.first.rdb.SetRange(t.Context(), f.first.leaseName(what), 0, "-").Err())
			began := time.Now()
			letGo()
			for _, a := range append(mine.wait(t), theirs.wait(t)...) {
				if fail == nil {
					a.is(t, "v")
				} else if a.err == nil {
					t.Errorf("a caller got %q; want the load's error", a.res.Value)
				}
			}
			if took := time.Since(began); took > lease+patience/2 {
				t.Errorf("a lost message cost %v; want no more than the lease of %v", took, lease)
			}
			o.loaded(t, 1)
			figures(t, "message of a "+what+" lost (lease "+lease.String()+")", o.loads.Load(), 0,
				theirs.answers...)
		})
	}
}
