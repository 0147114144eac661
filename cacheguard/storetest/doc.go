// Package storetest is the conformance suite for implementations of cacheguard.Store. Each case
// protects one of the promises that caches make on top of a store, and says which when it fails.
//
// The test of a store opens a Fleet, which is the store as two processes see it, and hands it to
// Run:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Fleet {
//			server := start(t)
//			return storetest.Fleet{Stores: []cacheguard.Store{connect(t, server), connect(t, server)}}
//		})
//	}
//
// The cases need no clean server: they draw the names of their caches at random. Where a store's
// time is part of the contract they wait for it, some tens of milliseconds each, and never fail
// because the machine was slow. Those that need to harm the store from outside are skipped unless
// the Fleet says how.
//
// Cases has the same cases one by one, for a runner of one's own: in a testing/synctest bubble, or
// against a store that is broken on purpose and must fail.
package storetest
