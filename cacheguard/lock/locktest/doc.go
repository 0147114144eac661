// Package locktest is the conformance suite for implementations of lock.Locker. Each case protects
// a rule that users of a lock build on, and says which when it fails.
//
// The test of a locker opens a Fleet, which is the locker as three processes have it, and hands it
// to Run:
//
//	func TestLocker(t *testing.T) {
//		locktest.Run(t, func(t *testing.T) locktest.Fleet {
//			server := start(t)
//			return locktest.Fleet{
//				Lockers: []lock.Locker{connect(t, server), connect(t, server), connect(t, server)},
//				Lease:   500 * time.Millisecond,
//			}
//		})
//	}
//
// The cases need no clean system: they draw the names of their locks at random. Where time is part
// of the contract they wait for it, a few leases each. They never fail because the machine was
// slow: what must happen has wide bounds, what must not happen is told by the order of events, and
// a lock that says itself that it was lost is bad luck, after which a case begins again. So give
// the lockers timeouts that a busy machine keeps.
//
// Those cases that need to harm the system from outside are skipped unless the Fleet says how;
// those with processes that are killed and stopped need a TestMain:
//
//	func TestMain(m *testing.M) {
//		os.Exit(locktest.Main(m, func(config string) (lock.Locker, func(), error) { ... }))
//	}
//
// Cases has the same cases one by one, for a runner of one's own: in a testing/synctest bubble, or
// against a locker that is broken on purpose and must fail.
package locktest
