package zklock_test

import (
	"path"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
	"github.com/cacheguard/cacheguard/cacheguard/lock/zklock"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

const (
	// suiteLease is long enough for a busy machine, and short enough that tests can wait for its
	// end.
	suiteLease  = 2 * time.Second
	suitePrefix = "/suite/locks"
)

func TestConformance(t *testing.T) {
	server := zktest.Shared(t)
	opts := zklock.Options{Prefix: suitePrefix, Lease: suiteLease}
	locktest.Run(t, func(t *testing.T) locktest.Fleet {
		t.Parallel() // these tests wait most of the time
		proxy := zktest.StartProxy(t, server.Addr())
		operator := open(t, server.Addr(), opts)
		return locktest.Fleet{
			Lockers: []lock.Locker{
				open(t, proxy.Addr(), opts).Locker, open(t, server.Addr(), opts).Locker,
				open(t, server.Addr(), opts).Locker,
			},
			Lease: suiteLease, Fenced: true, Reentrant: true,
			Process: site{server.Addr(), opts}.config(),
			Cut: func() func() {
				proxy.Blackhole(true)
				return func() { proxy.Blackhole(false); proxy.Cut() }
			},
			LoseReply: func() { proxy.LoseReply(successfulCreate()) },
			Steal: func(name string) {
				holder := operator.line(t, suitePrefix, name)[0]
				if err := operator.conn.Delete(zklock.DirOf(suitePrefix, name)+"/"+holder,
					-1); err != nil {
					t.Error(err)
				}
			},
		}
	})
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
