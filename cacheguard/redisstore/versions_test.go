package redisstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// nextVersion is a program of the next frame version, as docs/format.md describes it.
// Its values have names of their own; leases and messages are the same.
type nextVersion struct {
	t   *testing.T
	rdb *redis.Client
	r   *replica // a replica of this version, in the same fleet
}

func (n nextVersion) valueName() string { return n.r.valueName("k") + ":v2" }

func (n nextVersion) key() cacheguard.Key { return cacheguard.Key{Cache: "test", Key: "k"} }

// lease asks for the lease and returns the first two parts of the answer.
func (n nextVersion) lease(token cacheguard.ID) (state, detail string) {
	n.t.Helper()
	reply, err := n.rdb.Eval(n.t.Context(), redisstore.LeaseScript,
		[]string{n.valueName(), n.r.leaseName("k")},
		token.String(), longLease.Milliseconds(), "", "", "").Slice()
	must(n.t, err)
	state, _ = reply[0].(string)
	if len(reply) > 1 {
		detail, _ = reply[1].(string)
	}
	return state, detail
}

// fill stores a frame of the next version under its lease.
func (n nextVersion) fill(token cacheguard.ID, number string) (stored []byte) {
	n.t.Helper()
	stored = append([]byte{2, 0}, token[:]...)
	stored = append(stored, "whatever the next version looks like"...)
	answer, err := n.rdb.Eval(n.t.Context(), redisstore.FillScript,
		[]string{n.valueName(), n.r.leaseName("k")},
		token.String()+number, stored, time.Hour.Milliseconds(),
		redisstore.FilledMessage(n.key(), token), 4<<10,
		redisstore.Channel(n.r.prefix), redisstore.Channel(n.r.prefix)).Text()
	if err != nil || answer != "stored" {
		n.t.Fatalf("the fill of the next version: %q, %v", answer, err)
	}
	return stored
}

// value returns the entry under the next version's name.
func (n nextVersion) value() []byte {
	n.t.Helper()
	b, err := n.rdb.Get(n.t.Context(), n.valueName()).Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		n.t.Fatal(err)
	}
	return b
}

// Programs of two versions load a key once each and share one lease. They don't touch each other's
// values as long as nothing changes. A change by either removes both values.
func TestTwoVersionsSideBySide(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redistest.Start(t)
	r := newReplica(t, server.Addr(), newPrefix())
	r.listens(t)
	next := nextVersion{t, newClient(t, server.Addr()), r}
	token := cacheguard.ID{2}

	// The next version loads. This version waits for it, can't read the result, and loads.
	state, number := next.lease(token)
	if state != "granted" {
		t.Fatalf("the next version's lease is %s", state)
	}
	o := newOrigin("v")
	c := r.ask(t, 5, "k", o.load)
	r.waits(t)
	c.arrived.Wait()
	o.loaded(t, 0)
	began := time.Now()
	theirs := next.fill(token, number)
	c.got(t, "v")
	normal := time.Since(began)
	if normal > 2*soon {
		t.Errorf("the callers of this version were answered after %v: not by message", normal)
	}

	// Each version reads its own value, and nobody loads.
	ours, err := next.rdb.Get(ctx, r.valueName("k")).Bytes()
	must(t, err)
	for range 50 {
		r.get(t, "k", mustNotLoad(t)).hit(t, "v")
		if state, _ := next.lease(cacheguard.ID{3}); state != "value" {
			t.Fatalf("the next version is told %s; want its value", state)
		}
	}
	if now, err := next.rdb.Get(ctx, r.valueName("k")).Bytes(); err != nil ||
		!bytes.Equal(now, ours) || !bytes.Equal(next.value(), theirs) {
		t.Errorf("a value was written again: %q is %q, %q is %q, %v", ours, now, theirs,
			next.value(), err)
	}
	o.loaded(t, 1)

	// A change by either version removes both values.
	must(t, r.cache.Invalidate(ctx, "k"))
	if v := next.value(); v != nil {
		t.Errorf("after this version's Invalidate the next one has %q", v)
	}
	o.set("w", nil)
	letGo := o.hold()
	c = r.ask(t, 2, "k", o.load)
	waittest.Next(t, "this version loads", o.began)
	waittest.Next(t, "and the load before", o.began)
	if state, holder := next.lease(token); state != "held" || len(holder) != 32 {
		t.Errorf("while this version loads, the next one is told %s %s; want that the lease is held",
			state, holder)
	}
	letGo()
	c.got(t, "w")
	o.loaded(t, 2)
	_, number = next.lease(cacheguard.ID{4})
	next.fill(cacheguard.ID{4}, number)
	must(t, r.cache.Set(ctx, "k", "x"))
	if v := next.value(); v != nil {
		t.Errorf("after this version's Set the next one has %q", v)
	}
	must(t,
		next.rdb.Eval(ctx, redisstore.InvalidateScript,
			[]string{next.valueName(), r.leaseName("k"), r.valueName("k")},
			redisstore.Channel(r.prefix), redisstore.Channel(r.prefix),
			redisstore.ChangedMessage(next.key())).Err())
	o.set("y", nil)
	r.get(t, "k", o.load).is(t, "y")
	o.loaded(t, 3)
	if n := r.events.of(cacheguard.EventStoreError); n > 0 {
		t.Errorf("%d errors of the store were seen; want none", n)
	}
	figures(t, "old and new version side by side", o.loads.Load(), normal, c.answers...)
}

// If a later version leaves a record that this version doesn't know in place of a lease, it blocks
// nobody.
func TestOutcomeOfALaterVersion(t *testing.T) {
	t.Parallel()
	r := newReplica(t, redistest.Start(t).Addr(), newPrefix())
	for i, kind := range []string{"a", "z", "Q"} {
		key := fmt.Sprint(i)
		record := "!" + kind + strings.Repeat("0123456789abcdef", 2) +
			":60000:60000:3:something new"
		must(t, r.rdb.(*redis.Client).Set(t.Context(), r.leaseName(key), record, time.Minute).Err())
		o := newOrigin("v")
		r.get(t, key, o.load).is(t, "v")
		o.loaded(t, 1)
	}
}
