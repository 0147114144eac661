package redislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// A failover loses the data that the replica hadn't received. The documentation states this loss:
// there are two holders at once until the first holder's next renewal. Their tokens tell them
// apart.
func TestSentinelFailoverLosesALock(t *testing.T) {
	t.Parallel()
	const prefix, name, lease = "failover", "n", 24 * time.Second
	s := redistest.StartSentinel(t, 1, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	opts := redislock.Options{Prefix: prefix, Lease: lease, OpTimeout: 2 * time.Second}
	at := site{Addrs: s.Addrs(), Sentinel: true}
	a, b := open(t, at.client(), opts), open(t, at.client(), opts)
	operator := at.client()
	defer operator.Close()
	must(t, a.Warm(ctx))
	must(t, b.Warm(ctx))
	survivor, err := a.Lock(ctx, "replicated") // this lock has time to reach the replica
	must(t, err)

	master, err := s.Master(ctx)
	must(t, err)
	var replica *redistest.Server
	for _, addr := range s.Servers() {
		if addr != master {
			replica = s.Node(addr)
		}
	}
	awaitReplicated(ctx, t, master)
	if err := replica.Pause(); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("a process can't be paused here")
	} else {
		must(t, err)
	}
	atMaster := redis.NewClient(&redis.Options{Addr: master})
	defer atMaster.Close()
	// Otherwise the proxy would keep the data for the replica.
	must(t, atMaster.Do(ctx, "CLIENT", "KILL", "TYPE", "replica").Err())
	began := time.Now()
	first, err := a.Lock(ctx, name)
	must(t, err)
	s.Node(master).Kill()
	must(t, replica.Resume())
	_, err = s.AwaitFailover(ctx, master)
	must(t, err)

	var second lock.Lock
	waittest.Until(t, "the new master grants it", func() bool {
		second, err = b.TryLock(ctx, name)
		return err == nil
	})

	if took := time.Since(began); first.Err() == nil {
		t.Logf("two holders after %v", took)
	} else if took < lease/3 {
		t.Errorf("the first holder heard %v before its first renewal", first.Err())
	} else {
		t.Logf("the failover took %v, and the first holder has heard of it", took)
	}
	if second.Token() <= first.Token() {
		t.Errorf("token %d follows %d", second.Token(), first.Token())
	}
	select {
	case <-first.Lost():
	case <-time.After(patience):
		t.Error("the first holder never hears of it")
	}
	if err := second.Err(); err != nil {
		t.Errorf("the second holder's lock: %v", err)
	}
	must(t, second.Unlock(ctx))

	// The data that the replica had received is not lost, and messages still arrive.
	if err := survivor.Err(); err != nil {
		t.Logf("the failover took longer than a lease: %v", err)
		return
	}
	if held, err := b.TryLock(ctx, "replicated"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("a replicated lock was had twice: %v, %v", held, err)
	}
	waits := calls(ctx, b, "replicated")
	line(t, operator, prefix, "replicated", 1)
	must(t, survivor.Unlock(ctx))
	must(t, waits.lock(t).Unlock(ctx))
}

// awaitReplicated waits until the replica has all data of the master.
func awaitReplicated(ctx context.Context, t *testing.T, master string) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: master})
	defer rdb.Close()
	must(t, rdb.Set(ctx, "any", "thing", 0).Err()) // WAIT is for the writes of its own connection
	waittest.Until(t, "the replica has all", func() bool {
		return rdb.Wait(ctx, 1, time.Second).Val() == 1
	})

}
