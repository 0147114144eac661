package redlock_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// pair is a locker of three masters. The first two masters are one server. The second name of this
// server can be silent, and so can the third master.
type pair struct {
	*redlock.Locker
	server, third        *redistest.Server
	second, wire         *redistest.Proxy
	direct, directToLast *redis.Client
}

func newPair(t *testing.T, o redlock.Options) *pair {
	t.Helper()
	p := &pair{server: redistest.Start(t), third: redistest.Start(t)}
	p.second = redistest.StartProxy(t, p.server.Addr())
	p.wire = redistest.StartProxy(t, p.third.Addr())
	p.direct, p.directToLast = newClient(t, p.server.Addr()), newClient(t, p.third.Addr())
	var masters []redis.UniversalClient
	for _, addr := range []string{p.server.Addr(), p.second.Addr(), p.wire.Addr()} {
		masters = append(masters, newClient(t, addr))
	}
	var err error
	p.Locker, err = redlock.New(masters, o)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

// mute makes a proxy silent, or ends its silence. Data that was sent in the meantime is dropped.
func mute(wire *redistest.Proxy, on bool) {
	if !on {
		wire.Cut()
	}
	wire.Blackhole(on)
}

// servers returns the number of servers that have a lock.
func (p *pair) servers(t *testing.T, name string) (n int64) {
	t.Helper()
	for _, rdb := range []*redis.Client{p.direct, p.directToLast} {
		n += rdb.Exists(t.Context(), prefix+":"+name).Val()
	}
	return n
}

// While the second name of a server is silent, two servers grant the lock. When the second name
// replies, the locker notices that it is the same server. The second name never adds a vote,
// whatever it replies in between.
func TestSecondNameIsSilentAtFirst(t *testing.T) {
	t.Parallel()
	p := newPair(t, opts())
	mute(p.second, true)
	for i := range 3 {
		var held lock.Lock
		name := fmt.Sprint("k", i)
		// A busy server may miss the NodeTimeout.
		waittest.Until(t, "two servers grant the lock", func() bool {
			var err error
			held, err = p.TryLock(t.Context(), name)
			return err == nil
		})
		if n := p.servers(t, name); n != 2 {
			t.Errorf("lock %d is on %d servers; want 2", i, n)
		}
		_ = held.Unlock(t.Context()) // a busy server may miss the NodeTimeout here, too
	}

	must(t, p.wire.Refuse(true))
	p.wire.Cut()
	mute(p.second, false)
	gate := make(chan struct{})
	defer close(gate)
	for i := range 5 {
		// The name replies to requests for this lock, and to no others.
		name := fmt.Sprint("one server ", i)
		others := func(c redistest.Command) bool {
			return isAcquire(c) && !redistest.HasKey(prefix+":"+name)(c)
		}
		probe := p.second.DelayCommand(others, gate)
		for what, ask := range map[string]func(context.Context, string) (lock.Lock, error){
			"Lock": p.Lock, "TryLock": p.TryLock,
		} {
			if _, err := ask(t.Context(), name); err == nil {
				t.Errorf("%s %d is granted by one server with two names", what, i)
			}
		}
		probe.Disarm()
	}

	must(t, p.wire.Refuse(false))
	tries := 0
	waittest.Until(t, "it is found out", func() bool {
		tries++
		name := fmt.Sprint("two servers ", tries)
		held, err := p.TryLock(t.Context(), name)
		if err != nil {
			return strings.Contains(err.Error(), "are one server")
		}
		if n := p.servers(t, name); n != 2 {
			t.Errorf("the lock is on %d servers; want 2", n)
		}
		_ = held.Unlock(t.Context())
		return false
	})
}

// Two servers go on granting locks while the second name of one of them is silent, after the locker
// has noticed that it is the same server.
func TestSecondNameIsSilentLater(t *testing.T) {
	t.Parallel()
	p := newPair(t, opts())
	tries := 0
	// A new lock each time, because the silent name may have the vote for the last lock.
	try := func() (servers int64, err error) {
		tries++
		name := fmt.Sprint(tries)
		held, err := p.TryLock(t.Context(), name)
		if err != nil {
			return 0, err
		}
		servers = p.servers(t, name)
		_ = held.Unlock(t.Context()) // a busy server may miss the NodeTimeout
		return servers, nil
	}
	_, err := try()
	says(t, err, "are one server")
	mute(p.second, true)
	waittest.Until(t, "two servers are enough", func() bool {
		n, err := try()
		if err == nil && n != 2 {
			t.Errorf("the lock is on %d servers; want 2", n)
		}
		return err == nil
	})

	mute(p.second, false)
	waittest.Until(t, "it is found out again", func() bool {
		_, err := try()
		return err != nil && strings.Contains(err.Error(), "are one server")
	})

}

// While a second name is silent that was found to be the same server, no call waits for it.
// Otherwise each lock would take NodeTimeout.
func TestSilentSecondNameIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	p := newPair(t, opts())
	p.SetNodeTimeout(2 * patience)
	_, err := p.TryLock(t.Context(), "known")
	says(t, err, "are one server")
	must(t, p.second.Refuse(true))
	p.second.Cut()
	tries := 0
	waittest.Until(t, "the name is silent", func() bool {
		tries++
		if held, err := p.TryLock(t.Context(), fmt.Sprint(tries)); err == nil {
			_ = held.Unlock(t.Context())
		}
		return slices.Equal(p.Silent(), []int{1})
	})

	p.second.Blackhole(true)
	must(t, p.second.Refuse(false))
	defer mute(p.second, false)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	held, err := p.TryLock(ctx, "k")
	must(t, err)
	must(t, held.Unlock(ctx))
	if !p.Doubts() {
		t.Error("it is forgotten while one of the names is silent")
	}
}

// If only one server has a lock, by two names, no majority renews it.
func TestSecondNameDoesNotRenew(t *testing.T) {
	t.Parallel()
	o := brisk()
	p := newPair(t, o)
	p.SetNodeTimeout(timeoutOf(o.Lease))
	mute(p.second, true)
	var held lock.Lock
	tries := 0
	// On a busy machine the first connections may take too long.
	waittest.Until(t, "two servers give a lock", func() bool {
		tries++
		var err error
		held, err = p.TryLock(t.Context(), fmt.Sprint(tries))
		return err == nil
	})

	if n := p.servers(t, held.Name()); n != 2 {
		t.Fatalf("the lock is on %d servers; want 2", n)
	}
	must(t, p.wire.Refuse(true))
	p.wire.Cut()
	mute(p.second, false)
	waittest.Next(t, "the lock is lost", held.Lost())
	is(t, "Unlock", held.Unlock(t.Context()), lock.ErrLost)
}

// astray sends the requests for some locks to another server than all other requests.
type astray struct {
	begins string // the keys of these locks begin with it
	other  *redis.Client
}

func (a *astray) DialHook(next redis.DialHook) redis.DialHook { return next }
func (a *astray) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a *astray) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.ContainsFunc(cmd.Args(), func(arg any) bool {
			key, _ := arg.(string)
			return strings.HasPrefix(key, a.begins)
		}) {
			return a.other.Process(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

// While a name leads to another master's server, it adds no vote. When it leads to its own server
// again, it adds a vote.
func TestNameThatLeadsElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var masters []redis.UniversalClient
	for i := range 3 {
		masters = append(masters, newClient(t, s.proxies[i].Addr()))
	}
	masters[1].(*redis.Client).AddHook(&astray{prefix + ":astray", s.direct[0]})
	l, err := redlock.New(masters, opts())
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	works(t, l)
	s.refuse(t, 2)
	for i := range 3 {
		_, err = l.TryLock(t.Context(), fmt.Sprint("astray", i))
		says(t, err, "are one server")
		if !l.Doubts() {
			t.Error("it is forgotten before the names have been tried again")
		}
		must(t, get(t, l, "k").Unlock(t.Context()))
		if l.Doubts() {
			t.Error("names that lead to two servers are still in doubt")
		}
	}
}

// If the lock is free, Lock and Unlock run two scripts on each master, with four commands.
func TestUncontendedCommands(t *testing.T) {
	t.Parallel()
	const n = 10
	s := newSite(t)
	l := s.open(t, opts())
	// This loads both scripts on all masters. Warm would also try whether two masters are one
	// server, and its commands could still be on their way below.
	works(t, l)
	s.nothingLeft(t, "warm")
	for _, rdb := range s.direct {
		must(t, redistest.ResetStats(t.Context(), rdb))
	}
	for i := range n { // a new lock each time, because Unlock doesn't wait for all masters
		must(t, get(t, l, fmt.Sprint(i)).Unlock(t.Context()))
	}
	want := map[string]int64{"EVALSHA": 2 * n, "GET": 2 * n, "SET": n, "DEL": n}
	for i, rdb := range s.direct {
		var stats map[string]int64
		defer func() {
			if t.Failed() {
				t.Logf("%d times Lock and Unlock took %v on master %d; want %v", n, stats, i, want)
			}
		}()
		waittest.Until(t, "they are the commands that are needed", func() bool {
			var err error
			stats, err = redistest.CommandStats(t.Context(), rdb)
			must(t, err)
			maps.DeleteFunc(stats, func(name string, _ int64) bool {
				// Of connections, the subscription and this test.
				return name == "PING" || name == "SUBSCRIBE" || name == "HELLO" ||
					strings.HasPrefix(name, "CLIENT") || strings.HasPrefix(name, "CONFIG") ||
					name == "INFO"
			})
			return maps.Equal(stats, want)
		})

	}
}
