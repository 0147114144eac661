// Package storetest is the conformance suite for implementations of [cacheguard.Store]. Each case
// tests one of the promises of a store that caches rely on, and names that promise when it fails.
//
// The test of a store opens a [Fleet], which is the store as two processes see it, and passes it to
// [Run]:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Fleet {
//			server := start(t)
//			return storetest.Fleet{Stores: []cacheguard.Store{connect(t, server), connect(t, server)}}
//		})
//	}
//
// The store need not be empty: the cases use random names for their caches. If a case tests time
// limits of the store, it waits for them, some tens of milliseconds each, and it hardly ever fails
// because the machine was slow. Cases that must damage the store from outside are skipped unless
// the Fleet has a function for that.
//
// [Cases] returns the same cases one by one, for a runner of your own: for a testing/synctest
// bubble, or for a store that is broken on purpose and must fail.
package storetest
