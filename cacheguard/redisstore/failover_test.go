package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// A cluster under load changes its masters in every possible way. Callers get right values all the
// time. Data that only a dying master knew may be lost, and this loss is bounded.
func TestClusterUnderLoad(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	tr := newTraffic(t, func(s *site) {
		// If a node is stopped, a client may need up to twice its ReadTimeout to learn which node
		// has the slots.
		rdb := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: c.Addrs(), ReadTimeout: time.Second,
		})
		t.Cleanup(func() { _ = rdb.Close() })
		s.rdb = rdb
		if !redistest.Soak() {
			s.store.OpTimeout = outageOp // shorter than a failover
		}
	})
	key := tr.fleet[0].valueName("quiet-1")
	ctx, cancel := context.WithTimeout(t.Context(), 24*patience)
	defer cancel()
	tr.runs(time.Second)

	old, err := c.Master(ctx, key)
	must(t, err)
	m, began, lossEnds := tr.mark(), time.Now(), tr.mayLose()
	c.Node(old).Kill()
	_, err = c.AwaitFailover(ctx, key, old)
	must(t, err)
	servers := time.Since(began)
	without := tr.usable("quiet-1", began)
	lossEnds()
	tr.serves()
	tr.report("master killed", m, servers, without)

	m, began = tr.mark(), time.Now()
	must(t, c.Node(old).Restart())
	must(t, c.AwaitWhole(ctx))
	tr.report("it comes back as a replica", m, time.Since(began), 0)

	// In a failover by hand nothing gets lost, because the master waits until its replica has all
	// changes.
	m, began = tr.mark(), time.Now()
	must(t, c.Failover(ctx, key, old))
	servers = time.Since(began)
	without = tr.usable("quiet-1", began)
	tr.serves()
	must(t, c.AwaitWhole(ctx))
	tr.report("replica promoted by hand", m, servers, without)

	m, began = tr.mark(), time.Now()
	// Each of these keys is in another slot.
	hot := []string{"quiet-2", "quiet-199", "changing-1", "changing-2", "changing-3"}
	tr.hot.Store(&hot)
	moves := make(map[string]*redistest.Move)
	for _, k := range hot {
		to := tr.otherMaster(ctx, c, k)
		moves[k], err = c.BeginMove(ctx, tr.fleet[0].valueName(k), to)
		must(t, err)
	}
	tr.runs(time.Second / 2)
	for range 20 { // meanwhile keys are added and removed
		for _, k := range hot {
			_, err := moves[k].Keys(ctx, 10)
			must(t, err)
		}
		tr.runs(time.Second / 40)
	}
	for _, k := range hot {
		must(t, moves[k].End(ctx))
	}
	servers = time.Since(began)
	without = tr.usable("quiet-2", began)
	tr.hot.Store(nil)
	tr.serves()
	must(t, c.AwaitWhole(ctx))
	tr.report("slots moved", m, servers, without)

	// Now another master dies, because the first one's replica was promoted a moment ago: for some
	// seconds after an election Redis 7.0 takes its votes for those of the next election, too.
	first, other := old, ""
	for i := 2; old == first; i++ {
		other = fmt.Sprintf("quiet-%d", i)
		old, err = c.Master(ctx, tr.fleet[0].valueName(other))
		must(t, err)
	}
	m, began, lossEnds = tr.mark(), time.Now(), tr.mayLose()
	if err = c.Node(old).Pause(); !errors.Is(err, errors.ErrUnsupported) {
		must(t, err)
		_, err = c.AwaitFailover(ctx, tr.fleet[0].valueName(other), old)
		must(t, err)
		servers = time.Since(began)
		without = tr.usable(other, began)
		must(t, c.Node(old).Resume())
		must(t, c.AwaitWhole(ctx)) // by now the old master knows that it isn't the master any more
		lossEnds()
		tr.serves()
		tr.report("master stopped and continued", m, servers, without)
	}
	tr.end(3) // one lease, and one more for each time something may be lost
}

// otherMaster returns a key of a master that doesn't have the given key.
func (tr *traffic) otherMaster(ctx context.Context, c *redistest.Cluster, key string) string {
	tr.t.Helper()
	its, err := c.Master(ctx, tr.fleet[0].valueName(key))
	must(tr.t, err)
	// These keys are not all on one master.
	for _, k := range []string{"a", "b", "c", "d", "e", "f"} {
		other, err := c.Master(ctx, k)
		must(tr.t, err)
		if other != its {
			return other
		}
	}
	tr.t.Fatal("all keys have one master")
	return ""
}

// downAfter sets how long the master must not have answered the Sentinels until they take it for
// down.
func downAfter(t *testing.T, s *redistest.Sentinel, d time.Duration) {
	t.Helper()
	for _, addr := range s.Addrs() {
		sentinel := redis.NewSentinelClient(&redis.Options{Addr: addr})
		must(t, sentinel.Set(t.Context(), redistest.SentinelMaster, "down-after-milliseconds",
			strconv.FormatInt(d.Milliseconds(), 10)).Err())
		must(t, sentinel.Close())
	}
}

func TestSentinelUnderLoad(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 2, 3)
	tr := newTraffic(t, func(x *site) { x.rdb = failoverClient(t, s) })
	ctx, cancel := context.WithTimeout(t.Context(), 24*patience)
	defer cancel()
	// A master that is down is away for longer than lossTime, so that callers do without it.
	downAfter(t, s, lossTime+time.Second)
	old, err := s.Master(ctx)
	must(t, err)
	tr.runs(time.Second)

	m, began, lossEnds := tr.mark(), time.Now(), tr.mayLose()
	s.Node(old).Kill()
	master, err := s.AwaitFailover(ctx, old)
	must(t, err)
	servers := time.Since(began)
	without := tr.usable("quiet-1", began)
	lossEnds()
	tr.serves()
	tr.report("master killed", m, servers, without)

	// In a failover by hand nobody waits for the old master. It acts as a master until it is told
	// otherwise, and changes that it gets meanwhile are lost.
	m, began, lossEnds = tr.mark(), time.Now(), tr.mayLose()
	must(t, s.Failover(ctx))
	_, err = s.AwaitFailover(ctx, master)
	must(t, err)
	servers = time.Since(began)
	// The old one will think for many seconds more that it is the master. Until a client has heard
	// of the new one, its steps reach the old one and give no errors.
	left := newClient(t, master)
	waittest.Until(t, "no step reaches the old master", func() bool {
		clients, err := left.Do(ctx, "CLIENT", "LIST", "TYPE", "normal").Text()
		must(t, err)
		return !strings.Contains(clients, " name="+failoverName+" ")
	})
	without = tr.usable("quiet-1", began)
	tr.serves()
	lossEnds()
	tr.report("replica promoted by hand", m, servers, without)
	tr.runs(time.Second / 2)
	tr.end(3)
}

// failoverName is the name by which servers know a failoverClient.
const failoverName = "replica"

// failoverClient is a client that asks the Sentinels for the master.
func failoverClient(t *testing.T, s *redistest.Sentinel) *redis.Client {
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: redistest.SentinelMaster, SentinelAddrs: s.Addrs(), ContextTimeoutEnabled: true,
		ClientName: failoverName,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// A master that dies without a replica makes only its own slots unavailable. Keys in other slots
// are still read, leased, loaded once and invalidated. Waiting processes get messages, also a
// process that starts only now.
func TestClusterLosesSlots(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	ctx, cancel := context.WithTimeout(t.Context(), 24*patience)
	defer cancel()
	masterOf := func(name string) string {
		master, err := c.Master(ctx, name)
		must(t, err)
		return master
	}
	// The dead master has the data that exists once for a fleet.
	prefix := newPrefix()
	for masterOf(redisstore.Channel(prefix)) != masterOf(redisstore.ClockName(prefix)) {
		prefix = newPrefix()
	}
	dead := masterOf(redisstore.ClockName(prefix))
	join := func() *replica {
		return newReplica(t, "", prefix, func(s *site) {
			s.rdb, s.store.OpTimeout = clusterClient(t, c.Addrs()...), lossTime
		})
	}
	f := &wired{first: join(), second: join()}
	f.third = f.second
	f.serves(t)
	keyOf := func(alive bool) string {
		key := newPrefix()
		for (masterOf(f.first.valueName(key)) != dead) != alive {
			key = newPrefix()
		}
		return key
	}
	lost, kept := keyOf(false), keyOf(true)
	for _, k := range []string{lost, kept} {
		f.first.get(t, k, newOrigin("v").load).is(t, "v")
	}

	began := time.Now()
	c.Node(dead).Kill()
	for _, r := range []*replica{f.first, f.second} {
		r.get(t, kept, mustNotLoad(t)).hit(t, "v")
		a := r.get(t, lost, newOrigin("w").load)
		a.is(t, "w")
		if !a.res.Degraded {
			t.Error("a caller who was served without Redis wasn't told so")
		}
	}
	// Many reads at a time are sent in batches. None of them waits for the dead master.
	crowds := []*crowd{}
	for range 3 {
		crowds = append(crowds, f.first.ask(t, 1, keyOf(false), newOrigin("w").load))
	}
	for range 20 {
		a := f.first.get(t, kept, mustNotLoad(t))
		a.hit(t, "v")
	}
	for _, c := range crowds {
		c.got(t, "w")
	}
	var failed cacheguard.KeyErrors
	err := f.second.cache.Invalidate(ctx, kept, lost, keyOf(true))
	if !errors.As(err, &failed) || len(failed) != 1 || failed[lost] == nil {
		t.Errorf("Invalidate of three keys, one of them in a lost slot, gave %v; want an error for %q",
			err, lost)
	}
	if res, err := f.first.cache.Peek(ctx, kept); err != nil ||
		res.Status != cacheguard.StatusMiss {
		t.Errorf("Peek gave %v, %v after Invalidate; want a miss", res, err)
	}
	f.servesKeys(t, func() string { return keyOf(true) })
	t.Logf("after %v all is in order but for the lost slots", time.Since(began))

	late := join()
	f.third, f.second = late, late
	f.servesKeys(t, func() string { return keyOf(true) })

	must(t, c.Node(dead).Restart())
	must(t, c.AwaitWhole(ctx))
	for _, r := range []*replica{f.first, late} {
		waittest.Until(t, "the slots are used again", func() bool {
			_, err := r.cache.Peek(ctx, lost)
			return err == nil
		})

	}
	f.serves(t)
}

// While the slot of a key is being moved, its value can be read and invalidated, on whichever node
// its names are. If there is no value, each process loads for itself. After the move all is as
// before, and no result from the time of the move appears.
func TestClusterMovesSlots(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 24*patience)
	defer cancel()
	prefix := newPrefix()
	join := func() *replica {
		return newReplica(t, "", prefix, func(s *site) {
			s.rdb, s.store.OpTimeout = clusterClient(t, c.Addrs()...), lossTime
		})
	}
	f := &wired{first: join(), second: join()}
	f.third = f.second
	f.serves(t)
	for _, k := range []string{"stays", "goes", "{many", "none"} {
		name := f.first.valueName(k)
		from, err := c.Master(ctx, name)
		must(t, err)
		to := c.Addrs()[0]
		if to == from {
			to = c.Addrs()[1]
		}
		if k != "none" {
			must(t, f.first.cache.Set(ctx, k, "v"))
		}
		m, err := c.BeginMove(ctx, name, to)
		must(t, err)
		if k == "goes" {
			if n, err := m.Keys(ctx, 10); n != 1 || err != nil {
				t.Fatalf("%d names were moved, %v; want 1", n, err)
			}
		}
		o := newOrigin("w")
		if k != "none" {
			f.second.get(t, k, mustNotLoad(t)).hit(t, "v")
			keys := []string{k}
			if k == "{many" {
				keys = append(keys, "another", "a third")
			}
			if err := f.first.cache.Invalidate(ctx, keys...); err != nil {
				t.Errorf("Invalidate(%q) in a slot that is being moved gave %v", keys, err)
			}
		}
		all := f.first.ask(t, 5, k, o.load)
		for _, a := range all.wait(t) {
			a.is(t, "w")
		}
		if n := o.loads.Load(); n < 1 || n > 5 {
			t.Errorf("%d loads for five callers", n)
		}
		must(t, m.End(ctx))
		o.set("x", nil)
		f.second.get(t, k, o.load).is(t, "x") // the result of the load was not stored
		f.hits(t, k, "x")
	}
	f.serves(t)
}

// A server that reads its data after a restart answers LOADING, which is treated like no answer.
// After that it has all its data.
func TestRestartWithData(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--enable-debug-command", "yes", "--dbfilename", "dump.rdb",
		"--rdbcompression", "no", "--key-load-delay", "15000",
		"--loading-process-events-interval-bytes", "1024")
	prefix, ctx := newPrefix(), t.Context()
	patient := func(s *site) { s.store.OpTimeout = lossTime }
	f := &wired{
		first: newReplica(t, server.Addr(), prefix), second: newReplica(t, server.Addr(), prefix),
	}
	f.third = f.second
	r := newReplica(t, server.Addr(), prefix, patient) // is there while the server loads
	f.serves(t)
	must(t, f.first.cache.Set(ctx, "k", "v"))
	rdb := newClient(t, server.Addr())
	// Few keys with long delays: on a slow machine each delay ends a few milliseconds late.
	must(t, rdb.Do(ctx, "DEBUG", "POPULATE", 200, "other", 2000).Err())
	must(t, rdb.Save(ctx).Err())

	began := time.Now()
	restarted := make(chan error, 1)
	go func() { restarted <- server.Restart() }()
	var loads atomic.Int64
	load := func(context.Context) (string, error) {
		loads.Add(1)
		return "w", nil
	}
	// Most callers don't wait at all, and are not to be hundreds of thousands.
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var all []answer
	for away := true; away; <-tick.C {
		a := r.get(t, "another", load)
		all = append(all, a)
		a.is(t, "w")
		if a.took > 3*lossTime {
			t.Errorf("a caller waited %v for a server that loads", a.took)
		}
		select {
		case err := <-restarted:
			must(t, err)
			away = false
		default:
		}
	}
	if r.log.Count("LOADING") == 0 {
		t.Error("the log doesn't say LOADING")
	}
	if len(all) < 3 {
		t.Errorf("%d callers were answered while the server was away", len(all))
	}
	loading := time.Since(began)
	waittest.Until(t, "the server is used again", func() bool {
		return !r.get(t, newPrefix(), load).res.Degraded
	})

	t.Logf("the server was away for %v and used again after %v, with %d loads of one caller",
		loading, time.Since(began), loads.Load())
	f.first.get(t, "k", mustNotLoad(t)).hit(t, "v")
	f.serves(t)
	figures(t, "Redis says LOADING", loads.Load(), time.Since(began)-loading, all...)
}
