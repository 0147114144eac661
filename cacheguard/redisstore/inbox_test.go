package redisstore_test

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// wiretap records the bytes that a server sends to a client's subscription.
type wiretap struct {
	mu   sync.Mutex // guards sent
	sent bytes.Buffer
}

func (w *wiretap) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &tappedConn{Conn: c, tap: w}, nil
}

type tappedConn struct {
	net.Conn
	tap *wiretap
	mu  sync.Mutex // guards ear
	ear bool
}

func (c *tappedConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("\r\nsubscribe\r\n")) {
		c.mu.Lock()
		c.ear = true
		c.mu.Unlock()
	}
	return c.Conn.Write(b)
}

func (c *tappedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	ear := c.ear
	c.mu.Unlock()
	if ear {
		c.tap.mu.Lock()
		defer c.tap.mu.Unlock()
		c.tap.sent.Write(b[:n])
	}
	return n, err
}

// messages counts those that have arrived, and those among them that have the text.
func (w *wiretap) messages(text string) (all, with int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.sent.String()
	return strings.Count(sent, "$7\r\nmessage\r\n") + strings.Count(sent, "$8\r\npmessage\r\n"),
		strings.Count(sent, text)
}

// member is a process of a fleet whose messages are counted as they come over the connection.
type member struct {
	*redisstore.Store
	rdb  *redis.Client
	tap  wiretap
	told inbox // the messages that its listeners got
	last string
	had  int
}

// newMember makes a process that has these caches open.
func newMember(t *testing.T, addr, prefix string, caches ...string) *member {
	t.Helper()
	m := &member{}
	m.rdb = redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, Dialer: m.tap.dial,
	})
	t.Cleanup(func() { _ = m.rdb.Close() })
	m.Store = newStore(t, m.rdb, redisstore.Options{Prefix: prefix, OpTimeout: patience})
	for _, cache := range caches {
		t.Cleanup(m.Listen(cache, m.told.tell))
	}
	must(t, m.Warm(t.Context()))
	return m
}

// heard returns how many messages have come since its last call. Messages come in order, so heard
// sends a message without meaning and waits for it.
func (m *member) heard(t *testing.T) int {
	t.Helper()
	m.last = "nothing " + newPrefix()
	must(t, m.rdb.Publish(t.Context(), m.InboxChannel(), m.last).Err())
	now := 0
	waittest.Until(t, "the last message arrives", func() (ok bool) {
		all, last := m.tap.messages(m.last)
		now = all
		return last == 1
	})

	n := now - m.had - 1
	m.had = now
	return n
}

func hear(t *testing.T, what string, want int, all ...*member) {
	t.Helper()
	for i, m := range all {
		if n := m.heard(t); n != want {
			t.Errorf("%s: process %d heard %d messages; want %d", what, i, n, want)
		}
	}
}

var testKey = cacheguard.Key{Cache: "test", Key: "k"}

// load returns a token with letters, as most tokens have.
func load(n byte) cacheguard.ID { return cacheguard.ID{n, 0xab} }

func frameOf(id cacheguard.ID, size int) []byte {
	return append(append([]byte("v0"), id[:]...), make([]byte, size)...)
}

func (m *member) ask(t *testing.T, token byte, want cacheguard.LeaseState) cacheguard.Grant {
	t.Helper()
	ans, err := m.Lease(t.Context(), testKey,
		cacheguard.LeaseAsk{Token: load(token), TTL: time.Hour, Wait: true})
	must(t, err)
	if ans.State != want {
		t.Fatalf("load %d is told %d; want %d", token, ans.State, want)
	}
	return ans.Grant
}

func (m *member) fill(t *testing.T, g cacheguard.Grant, size int) {
	t.Helper()
	ans, err := m.Fill(t.Context(), testKey, g, frameOf(g.Token, size), time.Hour)
	if err != nil || ans != cacheguard.FillStored {
		t.Fatalf("the fill of load %d: %v, %v", g.Token[0], ans, err)
	}
}

// parish is a fleet in which few processes wait.
type parish struct {
	leader, first, second *member
	idle, elsewhere       []*member // processes with the cache open, and without it
	other                 *redis.Client
	prefix                string
}

func newParish(t *testing.T, server *redistest.Server) *parish {
	t.Helper()
	addr := server.Addr()
	p := &parish{prefix: newPrefix(), other: newClient(t, addr)}
	p.leader, p.first, p.second = newMember(t, addr, p.prefix, "test"),
		newMember(t, addr, p.prefix, "test"), newMember(t, addr, p.prefix, "test", "other")
	for range 4 {
		p.idle = append(p.idle, newMember(t, addr, p.prefix, "test"))
	}
	p.elsewhere = []*member{newMember(t, addr, p.prefix, "other"), newMember(t, addr, p.prefix)}
	return p
}

func (p *parish) quiet(t *testing.T, what string) {
	t.Helper()
	hear(t, what+", who doesn't wait", 0, append(p.idle, p.elsewhere...)...)
}

// P15: the message about the end of a load goes to the processes that wait for it, once to each
// process, and to no others.
func TestOnlyThoseWhoWaitAreTold(t *testing.T) {
	t.Parallel()
	p := newParish(t, redistest.Start(t))
	invalidate := func() {
		must(t, p.leader.Invalidate(t.Context(), []cacheguard.Key{testKey}))
		hear(t, "an invalidation", 1, append(p.idle, p.leader, p.first, p.second)...)
		hear(t, "an invalidation, without the cache", 0, p.elsewhere...)
	}
	for what, end := range map[string]func(g cacheguard.Grant){
		"a fill":       func(g cacheguard.Grant) { p.leader.fill(t, g, 10) },
		"a large fill": func(g cacheguard.Grant) { p.leader.fill(t, g, 10<<10) },
		"a failure": func(g cacheguard.Grant) {
			must(t,
				p.leader.Conclude(t.Context(), testKey, g,
					cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "no"}, time.Hour,
					time.Hour))
		},
		"an outcome that isn't kept": func(g cacheguard.Grant) {
			must(t,
				p.leader.Conclude(t.Context(), testKey, g,
					cacheguard.Outcome{Kind: cacheguard.OutcomeUnshared}, 0, 0))
		},
		"a release": func(g cacheguard.Grant) {
			must(t, p.leader.Release(t.Context(), testKey, g.Token))
		},
	} {
		g := p.leader.ask(t, 1, cacheguard.LeaseGranted)
		for range 3 {
			p.first.ask(t, 2, cacheguard.LeaseHeld)
			p.second.ask(t, 3, cacheguard.LeaseHeld)
		}
		end(g)
		hear(t, what, 1, p.first, p.second)
		hear(t, what+", the leader", 0, p.leader)
		p.quiet(t, what)
		if n := p.other.Exists(t.Context(),
			redisstore.WaitersName(p.prefix, testKey)).Val(); n != 0 {
			t.Errorf("%s leaves those who were told", what)
		}
		invalidate()
		g = p.leader.ask(t, 4, cacheguard.LeaseGranted)
		end(g)
		hear(t, what+" that nobody waits for", 0, p.leader, p.first, p.second)
		invalidate()
	}
}

// Every change of a key reaches the processes that have its cache open, once each, and no other
// process.
func TestChangesStayInTheirCache(t *testing.T) {
	t.Parallel()
	p := newParish(t, redistest.Start(t))
	ctx, keys := t.Context(), []cacheguard.Key{testKey}
	for what, change := range map[string]func() error{
		"Invalidate": func() error { return p.leader.Invalidate(ctx, keys) },
		"MarkStale": func() error {
			return p.leader.MarkStale(ctx, keys, 20, []byte("mark"))
		},
		"InvalidateTags": func() error {
			_, err := p.leader.InvalidateTags(ctx, "test", []string{"t"})
			return err
		},
		"InvalidateTags, all": func() error {
			_, err := p.leader.InvalidateTags(ctx, "test", nil)
			return err
		},
		"Claim": func() error {
			_, err := p.leader.Claim(ctx, testKey, load(1), time.Hour)
			return err
		},
	} {
		must(t, change())
		hear(t, what, 1, append(p.idle, p.leader, p.first, p.second)...)
		hear(t, what+", without the cache", 0, p.elsewhere...)
	}
}

// A change during a load reaches the processes that wait for the load, as it reaches all. The list
// of these processes is removed.
func TestChangeMeetsThoseWhoWait(t *testing.T) {
	t.Parallel()
	p := newParish(t, redistest.Start(t))
	ctx, keys := t.Context(), []cacheguard.Key{testKey}
	for what, change := range map[string]func() error{
		"Invalidate": func() error { return p.leader.Invalidate(ctx, keys) },
		"MarkStale":  func() error { return p.leader.MarkStale(ctx, keys, 20, []byte("mark")) },
		"Claim": func() error {
			_, err := p.leader.Claim(ctx, testKey, load(9), time.Hour)
			return err
		},
	} {
		g := p.leader.ask(t, 1, cacheguard.LeaseGranted)
		p.first.ask(t, 2, cacheguard.LeaseHeld)
		must(t, change())
		hear(t, what, 1, append(p.idle, p.leader, p.first)...)
		if ans, err := p.leader.Fill(ctx, testKey, g, frameOf(g.Token, 0), time.Hour); err != nil ||
			ans == cacheguard.FillStored {
			t.Errorf("%s: the fill of the load before is told %v, %v", what, ans, err)
		}
		hear(t, what+", then a late fill", 0, append(p.idle, p.leader, p.first)...)
		if n := p.other.Exists(ctx, redisstore.WaitersName(p.prefix, testKey)).Val(); n != 0 {
			t.Errorf("%s leaves those who waited", what)
		}
		must(t, p.leader.Release(ctx, testKey, load(9)))
	}
}

// If a leader dies, the processes that waited for it get the message about the load that takes its
// place, whether they have asked again or not.
func TestTakeoverTellsThoseWhoWaited(t *testing.T) {
	t.Parallel()
	p := newParish(t, redistest.Start(t))
	lease, waiters := redisstore.LeaseName(p.prefix, testKey),
		redisstore.WaitersName(p.prefix, testKey)
	dead := p.leader.ask(t, 1, cacheguard.LeaseGranted)
	p.first.ask(t, 2, cacheguard.LeaseHeld)
	p.second.ask(t, 3, cacheguard.LeaseHeld)
	must(t, p.other.Del(t.Context(), lease).Err()) // the lease has ended, or was evicted
	must(t, p.other.PExpire(t.Context(), waiters, time.Minute).Err())
	g := p.second.ask(t, 4, cacheguard.LeaseGranted)
	p.outlive(t, "a takeover")
	if ans, err := p.leader.Fill(t.Context(), testKey, dead, frameOf(dead.Token, 0),
		time.Hour); err != nil || ans != cacheguard.FillOther {
		t.Errorf("the dead leader's fill: %v, %v", ans, err)
	}
	hear(t, "the fill of a leader that was taken for dead", 0, p.first, p.second)
	p.second.fill(t, g, 10)
	hear(t, "the fill of the next one", 1, p.first, p.second)
	p.quiet(t, "the fill of the next one")
}

// outlive checks that the list of waiting processes lasts longer than the lease.
func (p *parish) outlive(t *testing.T, what string) {
	t.Helper()
	ctx := t.Context()
	lease := p.other.PTTL(ctx, redisstore.LeaseName(p.prefix, testKey)).Val()
	if waiters := p.other.PTTL(ctx, redisstore.WaitersName(p.prefix, testKey)).Val(); lease <= 0 ||
		waiters <= lease {
		t.Errorf("after %s the lease ends after %v, and who waits for it is forgotten after %v",
			what, lease, waiters)
	}
}

func TestRenewalsKeepThoseWhoWait(t *testing.T) {
	t.Parallel()
	p := newParish(t, redistest.Start(t))
	g := p.leader.ask(t, 1, cacheguard.LeaseGranted)
	p.first.ask(t, 2, cacheguard.LeaseHeld)
	p.outlive(t, "the first question")
	for _, ttl := range []time.Duration{2 * time.Hour, 3 * time.Hour} {
		if held, err := p.leader.Renew(t.Context(), testKey, g, ttl); err != nil ||
			held != cacheguard.HoldingMine {
			t.Fatalf("the renewal: %v, %v", held, err)
		}
		p.outlive(t, "a renewal")
	}
	p.second.ask(t, 3, cacheguard.LeaseHeld)
	p.outlive(t, "the next question")
	p.leader.fill(t, g, 10)
	hear(t, "the fill", 1, p.first, p.second)
}

// If most processes wait, or the fleet is small, one message goes to all processes that have the
// cache open. Then processes that come later needn't be added to the list.
func TestOneMessageWhereMostWait(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	for _, c := range []struct{ processes, waiting int }{{2, 1}, {4, 1}, {6, 3}, {9, 8}} {
		prefix := newPrefix()
		elsewhere := newMember(t, addr, prefix, "other")
		var all []*member
		for range c.processes {
			all = append(all, newMember(t, addr, prefix, "test"))
		}
		g := all[0].ask(t, 1, cacheguard.LeaseGranted)
		for i := range c.waiting {
			all[1+i].ask(t, byte(2+i), cacheguard.LeaseHeld)
		}
		if waiters, err := elsewhere.rdb.Get(t.Context(),
			redisstore.WaitersName(prefix, testKey)).Result(); err != nil || waiters != "*" {
			t.Errorf("%d of %d wait: %q, %v; want all", c.waiting, c.processes, waiters, err)
		}
		all[0].fill(t, g, 10)
		hear(t, fmt.Sprintf("%d of %d wait", c.waiting, c.processes), 1, all...)
		hear(t, "another cache", 0, elsewhere)
	}
}

// However many processes wait, the data about them in Redis stays small.
func TestManyInboxes(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	prefix, rdb := newPrefix(), newClient(t, addr)
	channel := redisstore.CacheChannel(prefix, "test")
	for range 600 { // more than twice the number that is recorded
		idle := rdb.Subscribe(t.Context(), channel)
		_, err := idle.Receive(t.Context())
		must(t, err)
		t.Cleanup(func() { _ = idle.Close() })
	}
	lease := func(i int) cacheguard.Grant {
		s := newStore(t, rdb, redisstore.Options{Prefix: prefix, OpTimeout: patience})
		ans, err := s.Lease(t.Context(), testKey,
			cacheguard.LeaseAsk{Token: load(byte(i % 200)), TTL: time.Hour, Wait: true})
		must(t, err)
		return ans.Grant
	}
	leader := newMember(t, addr, prefix, "test")
	g := leader.ask(t, 200, cacheguard.LeaseGranted)
	name, most := redisstore.WaitersName(prefix, testKey), 0
	for i := range 260 {
		lease(1 + i)
		waiters, err := rdb.Get(t.Context(), name).Result()
		must(t, err)
		most = max(most, strings.Count(waiters, " "))
		if all := waiters == "*"; all != (i >= 256) {
			t.Fatalf("with %d who wait there stands %q", i+1, waiters)
		}
	}
	if most != 256 {
		t.Errorf("up to %d inboxes were noted; want 256", most)
	}
	leader.fill(t, g, 10)
	hear(t, "one message for all", 1, leader)
}

// A process that comes between a load's beginning and its end gets the message or finds the value.
// There is no gap between.
func TestLateJoinersMissNothing(t *testing.T) {
	t.Parallel()
	p := newParish(t, redistest.Start(t))
	for range 50 {
		g := p.leader.ask(t, 1, cacheguard.LeaseGranted)
		var both sync.WaitGroup
		var ans cacheguard.LeaseAnswer
		var err error
		both.Go(func() { p.leader.fill(t, g, 10) })
		both.Go(func() {
			ans, err = p.first.Lease(t.Context(), testKey,
				cacheguard.LeaseAsk{Token: load(2), TTL: time.Hour, Wait: true})
		})
		both.Wait()
		must(t, err)
		n := p.first.heard(t)
		if held := ans.State == cacheguard.LeaseHeld; held && n != 1 ||
			!held && (n != 0 || ans.State != cacheguard.LeaseValue) {
			t.Fatalf("told %d, and %d messages", ans.State, n)
		}
		must(t, p.leader.Invalidate(t.Context(), []cacheguard.Key{testKey}))
		p.first.heard(t)
	}
}

// If a script tells too few processes or too many, the counts of messages show it.
func TestBrokenInboxesAreHeard(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, c := range []struct{ name, script, old, broken string }{
		{"as it is", "", "", ""},
		{"a fill tells nobody", redisstore.FillScript, "waiters and both[2]", "nil"},
		{
			"a fill forgets one inbox", redisstore.FillScript,
			"string.gmatch(waiters or '', ' (%x+)')", "string.gmatch(waiters or '', ' (%x+)$')",
		},
		{"a fill tells all", redisstore.FillScript, "waiters and both[2]", "'*'"},
		{
			"a question notes the first one alone", redisstore.LeaseScript,
			"(known and waiters or processes)", "processes",
		},
		{"nobody is noted", redisstore.LeaseScript, "note(waiters, left + ARGV[7])", "{}"},
		{
			"a takeover loses those who wait", redisstore.LeaseScript, "if waiters then -- whose",
			"redis.call('DEL', KEYS[5]) if false then -- whose",
		},
	} {
		p := newParish(t, server)
		if c.script != "" {
			if strings.Count(c.script, c.old) != 1 {
				t.Fatalf("the script has %q %d times, want once", c.old,
					strings.Count(c.script, c.old))
			}
			sum := sha1.Sum([]byte(c.script))
			for _, m := range []*member{p.leader, p.first, p.second} {
				m.rdb.AddHook(instead{
					hex.EncodeToString(sum[:]), strings.Replace(c.script, c.old, c.broken, 1),
				})
			}
		}
		p.leader.ask(t, 1, cacheguard.LeaseGranted)
		p.first.ask(t, 2, cacheguard.LeaseHeld)
		p.second.ask(t, 3, cacheguard.LeaseHeld)
		must(t, p.other.Del(t.Context(), redisstore.LeaseName(p.prefix, testKey)).Err())
		p.leader.fill(t, p.leader.ask(t, 4, cacheguard.LeaseGranted), 10)
		right := p.first.heard(t) == 1 && p.second.heard(t) == 1 && p.idle[0].heard(t) == 0
		if right != (c.script == "") {
			t.Errorf("%s: what is heard is right: %v", c.name, right)
		}
	}
}

// If another program has overwritten the list of waiters, nobody is blocked, and the entry is gone
// after a load.
func TestGarbageWaiters(t *testing.T) {
	t.Parallel()
	p := newParish(t, redistest.Start(t))
	ctx, name := t.Context(), redisstore.WaitersName(p.prefix, testKey)
	for what, write := range map[string]func() error{
		"a list": func() error { return p.other.RPush(ctx, name, "12 abc").Err() },
		"text": func() error {
			return p.other.Set(ctx, name, "by another program", 0).Err()
		},
		"nothing": func() error { return p.other.Set(ctx, name, "", 0).Err() },
		"a number": func() error {
			return p.other.Set(ctx, name, strings.Repeat("9", 400), 0).Err()
		},
		"other boxes": func() error {
			return p.other.Set(ctx, name, "12 abc  def \x00 9", 0).Err()
		},
	} {
		for _, before := range []bool{true, false} {
			if before {
				must(t, write())
			}
			g := p.leader.ask(t, 1, cacheguard.LeaseGranted)
			if !before {
				must(t, write())
			}
			p.first.ask(t, 2, cacheguard.LeaseHeld)
			if held, err := p.leader.Renew(ctx, testKey, g, time.Hour); err != nil ||
				held != cacheguard.HoldingMine {
				t.Errorf("%s: the renewal: %v, %v", what, held, err)
			}
			p.leader.fill(t, g, 10)
			hear(t, what, 1, p.first)
			if n := p.other.Exists(ctx, name).Val(); n != 0 {
				t.Errorf("%s is still there after a load", what)
			}
			must(t, p.leader.Invalidate(ctx, []cacheguard.Key{testKey}))
			p.first.heard(t)
		}
	}
}

// Callers in one process of many are woken by a message to its inbox. The lease lasts longer than
// any caller waits.
func TestCallersAreWokenByTheirInbox(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	prefix := newPrefix()
	var all []*replica
	for range 6 {
		r := newReplica(t, addr, prefix)
		r.listens(t)
		all = append(all, r)
	}
	first, second := all[0], all[1]
	for key, c := range map[string]struct {
		value string
		err   error
	}{"small": {"v", nil}, "large": {strings.Repeat("v", 10<<10), nil}, "failed": {"", errDown}} {
		o := newOrigin("")
		o.set(c.value, c.err)
		letGo := o.hold()
		mine := first.ask(t, 2, key, o.load)
		waittest.Next(t, "the first replica loads", o.began)
		held := second.store.told(cacheguard.LeaseHeld)
		theirs := second.ask(t, 2, key, o.load)
		waittest.Until(t, "the second one waits", func() bool {
			return second.store.told(cacheguard.LeaseHeld) > held
		})
		name := redisstore.WaitersName(prefix, cacheguard.Key{Cache: "test", Key: key})
		if waiters := first.rdb.Get(t.Context(), name).Val(); strings.Count(waiters, " ") != 1 {
			t.Errorf("%q stands there for one that waits", waiters)
		}
		theirs.arrived.Wait()
		letGo()
		for _, a := range append(mine.wait(t), theirs.wait(t)...) {
			if c.err == nil {
				a.is(t, c.value)
			} else if a.err == nil {
				t.Errorf("%s: a caller got %q; want an error", key, a.res.Value)
			}
		}
		o.loaded(t, 1)
	}
}

// If the list of waiters is lost, nobody gets the message about a load. This costs the waiting
// processes the rest of the lease, and no load.
func TestForgottenWaitersAskAgain(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	prefix := newPrefix()
	short := func(s *site) { s.cache.LeaseTTL = 5 * time.Second }
	first, second := newReplica(t, addr, prefix, short), newReplica(t, addr, prefix, short)
	first.listens(t)
	second.listens(t)
	o := newOrigin("v")
	letGo := o.hold()
	mine := first.ask(t, 2, "k", o.load)
	waittest.Next(t, "the first replica loads", o.began)
	theirs := second.ask(t, 2, "k", o.load)
	second.waits(t)
	if n, err := first.rdb.Del(t.Context(),
		redisstore.WaitersName(prefix, testKey)).Result(); err != nil || n != 1 {
		t.Errorf("%d lists of those who wait, %v", n, err)
	}
	letGo()
	mine.got(t, "v")
	theirs.got(t, "v")
	o.loaded(t, 1)
}
