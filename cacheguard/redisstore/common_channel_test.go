package redisstore_test

import (
	"embed"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// commonScripts are the last scripts of the programs that know only one channel for all messages.
//
//go:embed testdata/common/*.lua
var commonScripts embed.FS

// older is a program that knows only the common channel. It listens and publishes there. In a lease
// it writes and reads no more than the mark.
type older struct {
	t      *testing.T
	rdb    *redis.Client
	prefix string
	ear    *redis.PubSub
}

func newOlder(t *testing.T, addr, prefix string) *older {
	t.Helper()
	o := &older{t: t, rdb: newClient(t, addr), prefix: prefix}
	o.ear = o.rdb.Subscribe(t.Context(), redisstore.Channel(prefix))
	t.Cleanup(func() { _ = o.ear.Close() })
	_, err := o.ear.Receive(t.Context())
	must(t, err)
	return o
}

func (o *older) run(keys []string, args []any, scripts ...string) *redis.Cmd {
	o.t.Helper()
	text := ""
	for _, name := range scripts {
		b, err := commonScripts.ReadFile("testdata/common/" + name + ".lua")
		must(o.t, err)
		text += string(b)
	}
	return o.rdb.Eval(o.t.Context(), text, keys, args...)
}

func (o *older) names() (value, lease string) {
	return redisstore.ValueName(o.prefix, testKey), redisstore.LeaseName(o.prefix, testKey)
}

// ask returns the reply to a request for the lease: the state, and the number of the grant or the
// holder.
func (o *older) ask(id cacheguard.ID) (state, detail string) {
	o.t.Helper()
	value, lease := o.names()
	reply, err := o.run([]string{
		value, lease, redisstore.GenerationsName(o.prefix, "test"),
		redisstore.WholeName(o.prefix, "test"),
	},
		[]any{id.String(), time.Hour.Milliseconds(), "", "", "1"}, "later", "lease").Slice()
	must(o.t, err)
	state, _ = reply[0].(string)
	detail, _ = reply[1].(string)
	return state, detail
}

func (o *older) fill(id cacheguard.ID, number string) {
	o.t.Helper()
	value, lease := o.names()
	answer, err := o.run([]string{value, lease},
		[]any{id.String() + number, frameOf(id, 10), time.Hour.Milliseconds(),
			redisstore.Channel(o.prefix), redisstore.FilledMessage(testKey, id), 4 << 10},
		"fill").Text()
	if err != nil || answer != "stored" {
		o.t.Fatalf("the older program's fill: %q, %v", answer, err)
	}
}

func (o *older) invalidate() {
	o.t.Helper()
	value, lease := o.names()
	must(o.t,
		o.run([]string{value, lease, value + ":v2"},
			[]any{redisstore.Channel(o.prefix), redisstore.ChangedMessage(testKey)},
			"invalidate").Err())
}

// heard returns the number of messages since its last call.
func (o *older) heard() (n int) {
	o.t.Helper()
	last := "nothing " + newPrefix()
	must(o.t, o.rdb.Publish(o.t.Context(), redisstore.Channel(o.prefix), last).Err())
	for {
		m, err := o.ear.ReceiveMessage(o.t.Context())
		must(o.t, err)
		if m.Payload == last {
			return n
		}
		n++
	}
}

// wants checks how often the older program was told of a change or a load's end, and that each
// member was told at least once.
func (o *older) wants(what string, n int, kind cacheguard.MessageKind, all ...*member) {
	o.t.Helper()
	if got := o.heard(); got != n {
		o.t.Errorf("%s: the older program heard %d messages; want %d", what, got, n)
	}
	for i, m := range all {
		m.heard(o.t) // the message has come over the connection; after that its listener is called
		waittest.Until(o.t, fmt.Sprintf("%s: process %d is told", what, i), func() bool {
			return len(m.told.of(kind, testKey.Key)) > 0
		})
		m.told.forget()
	}
}

// Programs that know only the common channel and new programs are one fleet: one load for each key,
// a message about its end to each waiting process, and each change reaches all processes. When the
// last older program has ended, nothing is published on the common channel any more.
func TestOlderProgramsBesideNewOnes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newParish(t, server)
	o := newOlder(t, server.Addr(), p.prefix)
	everybody := append(p.idle, p.leader, p.first, p.second)
	invalidate := func() {
		must(t, p.leader.Invalidate(t.Context(), []cacheguard.Key{testKey}))
		o.wants("an invalidation by a new program", 1, cacheguard.MessageChanged, everybody...)
	}

	state, number := o.ask(load(1))
	if state != "granted" {
		t.Fatalf("the older program is told %s", state)
	}
	p.first.ask(t, 2, cacheguard.LeaseHeld)
	p.second.ask(t, 3, cacheguard.LeaseHeld)
	o.fill(load(1), number)
	o.wants("the older one's load", 1, cacheguard.MessageFilled, p.first, p.second)
	invalidate()

	g := p.leader.ask(t, 4, cacheguard.LeaseGranted)
	p.first.ask(t, 5, cacheguard.LeaseHeld)
	for range 2 {
		if state, holder := o.ask(load(6)); state != "held" || len(holder) != 32 {
			t.Fatalf("while a new program loads, the older one is told %s by %q", state, holder)
		}
	}
	p.second.ask(t, 7, cacheguard.LeaseHeld)
	p.leader.fill(t, g, 10)
	o.wants("a new one's load", 1, cacheguard.MessageFilled, p.first, p.second)
	if state, _ := o.ask(load(6)); state != "value" {
		t.Errorf("after a new program's fill the older one is told %s", state)
	}

	o.invalidate()
	o.wants("an invalidation by the older one", 1, cacheguard.MessageChanged, everybody...)
	g = p.leader.ask(t, 8, cacheguard.LeaseGranted)
	p.first.ask(t, 9, cacheguard.LeaseHeld)
	o.invalidate()
	p.leader.ask(t, 10, cacheguard.LeaseGranted)
	if ans, err := p.leader.Fill(t.Context(), testKey, g, frameOf(g.Token, 10),
		time.Hour); err != nil || ans != cacheguard.FillOther {
		t.Errorf("a fill from before the older one's invalidation: %v, %v", ans, err)
	}
	o.wants("an invalidation during a load", 1, cacheguard.MessageChanged, everybody...)
	if _, err := p.leader.InvalidateTags(t.Context(), "test", []string{"t"}); err != nil ||
		o.heard() != 1 {
		t.Errorf("an invalidation by tag is not told to the older one, %v", err)
	}

	must(t, o.ear.Close())
	waittest.Until(t, "the older program's subscription ends", func() bool {
		n, err := p.other.PubSubNumSub(t.Context(), redisstore.Channel(p.prefix)).Result()
		return err == nil && n[redisstore.Channel(p.prefix)] == 0
	})

	for _, m := range everybody {
		m.heard(t)
	}
	must(t, p.leader.Invalidate(t.Context(), []cacheguard.Key{testKey}))
	hear(t, "an invalidation when the older one has ended", 1, everybody...)
}

// Without the right to count listeners, all processes get all messages, and so do older programs.
func TestNoRightToCountListeners(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := newClient(t, server.Addr())
	prefix := newPrefix()
	rdb := newUser(t, admin, named(prefix, "-pubsub")...)
	s := newStore(t, rdb, redisstore.Options{Prefix: prefix, OpTimeout: patience})
	must(t, s.Warm(t.Context()))
	other, o := newMember(t, server.Addr(), prefix, "test"), newOlder(t, server.Addr(), prefix)
	ask := cacheguard.LeaseAsk{Token: load(1), TTL: time.Hour, Wait: true}
	for _, want := range []cacheguard.LeaseState{cacheguard.LeaseGranted, cacheguard.LeaseHeld} {
		if ans, err := s.Lease(t.Context(), testKey, ask); err != nil || ans.State != want {
			t.Fatalf("told %v, %v; want %v", ans.State, err, want)
		}
		ask.Token = load(2)
	}
	must(t, s.Release(t.Context(), testKey, load(1)))
	o.wants("a release that a new program waits for", 0, cacheguard.MessageReleased, other)
	must(t, s.Invalidate(t.Context(), []cacheguard.Key{testKey}))
	o.wants("an invalidation", 1, cacheguard.MessageChanged, other)
}

// A cache that is opened later gets messages about its changes from then on, and reports when this
// begins. A closed cache costs nothing.
func TestCachesComeAndGo(t *testing.T) {
	t.Parallel()
	p := newParish(t, redistest.Start(t))
	late := p.elsewhere[1]
	listening := func() int64 {
		channel := redisstore.CacheChannel(p.prefix, "test")
		n, err := p.other.PubSubNumSub(t.Context(), channel).Result()
		must(t, err)
		return n[channel]
	}
	before := listening()
	for range 20 {
		stop := late.Listen("test", late.told.tell)
		again := late.Listen("test", late.told.tell)
		waittest.Until(t, "messages of the cache arrive", func() bool {
			return len(late.told.of(cacheguard.MessageRestored, "")) >= 2
		})
		late.heard(t)
		must(t, p.leader.Invalidate(t.Context(), []cacheguard.Key{testKey}))
		hear(t, "the cache that was opened", 1, late)
		waittest.Until(t, "each of 2 listeners is told of the change once", func() bool {
			return len(late.told.of(cacheguard.MessageChanged, testKey.Key)) == 2
		})
		stop()
		if n := listening(); n != before+1 {
			t.Errorf("%d processes listen; want %d", n, before+1)
		}
		again()
		waittest.Until(t, "the cache's channel is left", func() bool {
			return listening() == before
		})
		must(t, p.leader.Invalidate(t.Context(), []cacheguard.Key{testKey}))
		hear(t, "the cache that was closed", 0, late)
		late.told.forget()
	}
	// If a cache is closed and opened at once, its listener may be told before or after the server
	// knows.
	for range 200 {
		late.Listen("test", late.told.tell)()
	}
	late.told.forget() // that messages arrive is told again to the one that stays
	t.Cleanup(late.Listen("test", late.told.tell))
	waittest.Until(t, "messages of the cache arrive", func() bool {
		return len(late.told.of(cacheguard.MessageRestored, "")) > 0 && listening() == before+1
	})
	must(t, p.leader.Invalidate(t.Context(), []cacheguard.Key{testKey}))
	waittest.Until(t, "a change is told", func() bool {
		return len(late.told.of(cacheguard.MessageChanged, testKey.Key)) == 1
	})
}
