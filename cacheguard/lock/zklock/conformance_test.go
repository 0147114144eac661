package zklock_test

import (
	"errors"
	"path"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
	"github.com/cacheguard/cacheguard/cacheguard/lock/zklock"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

const (
	// The suite waits for many ends of leases. A case that was too slow for this lease begins again
	// with a longer one.
	suiteLease  = 2 * time.Second
	suitePrefix = "/suite/locks"
)

func TestConformance(t *testing.T) {
	server := zktest.Shared(t)
	locktest.Run(t, func(t *testing.T) locktest.Fleet {
		t.Parallel() // these tests wait most of the time
		operator := open(t, server.Addr(), zklock.Options{Lease: time.Minute})
		return fleet(t, server, operator, suiteLease)
	})
}

func fleet(
	t *testing.T, server *zktest.Server, operator *process, lease time.Duration,
) locktest.Fleet {
	proxy := zktest.StartProxy(t, server.Addr())
	opts := zklock.Options{Prefix: suitePrefix, Lease: lease, OpTimeout: lease}
	return locktest.Fleet{
		Lockers: []lock.Locker{
			open(t, proxy.Addr(), opts).Locker, open(t, server.Addr(), opts).Locker,
			open(t, server.Addr(), opts).Locker,
		},
		Lease: lease, Fenced: true, Reentrant: true,
		Longer: func(lease time.Duration) locktest.Fleet {
			return fleet(t, server, operator, lease)
		},
		Process: site{server.Addr(), opts}.config(),
		Cut: func() func() {
			proxy.Blackhole(true)
			return func() { proxy.Blackhole(false); proxy.Cut() }
		},
		LoseReply: func() { proxy.LoseReply(successfulCreate(), zktest.Hangup) },
		Steal: func(name string) {
			line := operator.line(t, suitePrefix, name)
			if len(line) == 0 {
				return // the holder's session has ended on a busy machine
			}
			if err := operator.conn.Delete(zklock.DirOf(suitePrefix, name)+"/"+line[0],
				-1); err != nil && !errors.Is(err, zk.ErrNoNode) {
				t.Error(err)
			}
		},
	}
}

// successfulCreate matches the request that puts a call into the queue of a new name. The first
// request fails because the node of the name doesn't exist. So it matches the request after this
// node was created.
func successfulCreate() func(zktest.Request) bool {
	made := map[string]bool{}
	return func(r zktest.Request) bool {
		if inLine(r) {
			return made[path.Dir(r.Path)]
		}
		if r.Op == "create" {
			made[r.Path] = true
		}
		return false
	}
}
