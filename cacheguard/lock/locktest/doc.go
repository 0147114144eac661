// Package locktest is the conformance suite for implementations of lock.Locker. Each case protects
// a rule that users of a lock rely on, and names this rule when the case fails.
//
// The test of a locker opens a [Fleet], which has the lockers of three processes, and passes it to
// [Run]:
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
// The cases don't need an empty system, because they choose random names for their locks. If time
// is part of the contract, a case waits a few leases. A slow machine hardly ever makes a case fail:
// events that must happen have generous time limits, and whether something forbidden happened is
// judged by the order of events. If a lock reports that it was lost, the case treats the loss as
// bad luck and begins again, up to four times. So give the lockers timeouts that a busy machine can
// meet.
//
// Some cases have to damage the system from outside. They are skipped unless the Fleet has a
// function for this damage. Cases with processes that are killed and stopped need a TestMain:
//
//	func TestMain(m *testing.M) {
//		os.Exit(locktest.Main(m, func(config string) (lock.Locker, func(), error) { ... }))
//	}
//
// [Cases] returns the same cases one by one, so that you can run them yourself: in a
// testing/synctest bubble, or against a locker that is broken on purpose and must fail.
package locktest
