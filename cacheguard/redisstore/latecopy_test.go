package redisstore_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// ghostTTL is how long the ghost of a lease blocks a key. A load in these tests ends long before.
const ghostTTL = 8 * time.Second

func briefLease(s *site) { s.cache.LeaseTTL = ghostTTL }

// A network may deliver a copy of a command long after its reply was given up. In these tests
// copies of a load's own commands arrive after the load's value was invalidated. First the copy of
// the lease request arrives and leaves a ghost, which is a lease with the load's token. Then the
// copy of the load's end arrives. The ghost may block the key for one lease. It must not let the
// old load end a second time.

// late is a fleet of two replicas that keeps copies of the first replica's commands.
type late struct {
	*wired
	lease, end *redistest.Held
}

func TestLateCopiesOfLeaseAndFill(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	t.Run("duplicated", func(t *testing.T) {
		t.Parallel()
		f := newWired(t, server, redistest.Silence, briefLease)
		copies := late{f,
			f.proxy.Duplicate(redistest.IsEval(redisstore.LeaseScript)),
			f.proxy.Duplicate(redistest.IsEval(redisstore.FillScript)),
		}
		copies.ofFill(t)
	})
	t.Run("overtaken by their repetitions", func(t *testing.T) {
		t.Parallel()
		f := newWired(t, server, redistest.Silence, briefLease)
		copies := late{f,
			f.proxy.HoldBack(redistest.IsEval(redisstore.LeaseScript), redistest.Hangup),
			f.proxy.HoldBack(redistest.IsEval(redisstore.FillScript), redistest.Hangup),
		}
		copies.ofFill(t)
	})
}

func (f late) ofFill(t *testing.T) {
	o := newOrigin("old")
	f.first.get(t, "k", o.load).is(t, "old")
	f.stored(t)
	f.kept(t)
	must(t, f.second.cache.Invalidate(t.Context(), "k"))

	f.haunt(t)
	f.arrives(t, f.end, "other")
	f.nothing(t)

	o.set("new", nil)
	f.second.get(t, "k", o.load).is(t, "new")
	f.first.get(t, "k", mustNotLoad(t)).hit(t, "new")
	o.loaded(t, 2)

	f.arrives(t, f.end, "gone")
	if got, want := f.release(t, f.lease).([]any)[0], any("value"); got != want {
		t.Errorf("the copy of the lease got %v beside a value; want %v", got, want)
	}
	f.arrives(t, f.end, "gone")
	f.hits(t, "k", "new")
}

// The same holds for a load that failed: its error must not come back.
func TestLateCopiesOfLeaseAndConclude(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := newWired(t, server, redistest.Silence, briefLease)
	copies := late{f,
		f.proxy.Duplicate(redistest.IsEval(redisstore.LeaseScript)),
		f.proxy.Duplicate(redistest.IsEval(redisstore.ConcludeScript)),
	}
	o, down := newOrigin(""), errors.New("the origin was down")
	o.set("", down)
	if a := f.first.get(t, "k", o.load); !errors.Is(a.err, down) {
		t.Fatalf("a caller got %v; want %v", a.err, down)
	}
	copies.kept(t)
	must(t, f.second.cache.Invalidate(t.Context(), "k"))

	copies.haunt(t)
	copies.arrives(t, copies.end, int64(0))
	o.set("new", nil)
	f.second.get(t, "k", o.load).is(t, "new")
	o.loaded(t, 2)
	f.hits(t, "k", "new")
}

// A copy of a renewal must not keep the ghost alive. A copy of a claim must not block the key for
// longer than a lease lasts.
func TestLateCopiesOfClaimAndFill(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := newWired(t, server, redistest.Silence, briefLease)
	copies := late{f,
		f.proxy.Duplicate(redistest.IsEval(redisstore.ClaimScript)),
		f.proxy.Duplicate(redistest.IsEval(redisstore.FillScript)),
	}
	o := newOrigin("old")
	v, err := f.first.cache.Update(t.Context(), "k", o.load)
	answer{res: cacheguard.Result[string]{Value: v}, err: err}.is(t, "old")
	copies.kept(t)
	must(t, f.second.cache.Invalidate(t.Context(), "k"))

	if reply, ok := copies.release(t, copies.lease).([]any); !ok || len(reply) != 1 {
		t.Fatalf("the copy of the claim got %v; want a number", reply)
	}
	copies.arrives(t, copies.end, "other")
	copies.nothing(t)
	o.set("new", nil)
	f.second.get(t, "k", o.load).is(t, "new")
	o.loaded(t, 2)
	f.hits(t, "k", "new")
}

// kept returns when there are copies of both commands.
func (f late) kept(t *testing.T) {
	t.Helper()
	waittest.Next(t, "the first command is kept", f.lease.Struck())
	waittest.Next(t, "the last command is kept", f.end.Struck())
}

// release lets a copy arrive.
func (f late) release(t *testing.T, h *redistest.Held) any {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	reply, err := h.Release(ctx)
	must(t, err)
	return reply
}

// haunt lets the copy of the lease arrive, and checks that it leaves a ghost. Without a ghost the
// test would prove nothing.
func (f late) haunt(t *testing.T) {
	t.Helper()
	reply, ok := f.release(t, f.lease).([]any)
	if !ok || reply[0] != "granted" {
		t.Fatalf("the copy of the lease got %v; want that it is granted", reply)
	}
}

func (f late) arrives(t *testing.T, h *redistest.Held, want any) {
	t.Helper()
	if got := f.release(t, h); !reflect.DeepEqual(got, want) {
		t.Errorf("a late copy of %v got %v; want %v", h.Command(), got, want)
	}
}

// nothing checks that there is no value.
func (f late) nothing(t *testing.T) {
	t.Helper()
	v, err := f.second.rdb.Get(t.Context(), f.first.valueName("k")).Result()
	if !errors.Is(err, redis.Nil) {
		t.Errorf("the value that was invalidated is back: %q, %v", v, err)
	}
}
