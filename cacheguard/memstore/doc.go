// Package memstore is a [cacheguard.Store] inside one process. It is for development without Redis
// and for tests. It also works in a testing/synctest bubble, whose clock it follows.
//
//	store := memstore.New(memstore.Options{})
//	defer store.Close()
//	products, err := cacheguard.New(store, cacheguard.Options[Product]{Name: "product"})
//
// It fulfils the whole contract of cacheguard.Store, with one mutex in the place of Redis' single
// thread: every step is atomic, late fills are refused, failed loads leave a record, and messages
// arrive in the order of the steps that they report. Several caches of the same name on one Store
// behave like the processes of a fleet, and all of them get every message.
//
// It promises nothing beyond this process. Two processes that have a memstore each know nothing of
// each other: each process loads every key for itself, and an invalidation in one doesn't reach the
// other. Nothing survives the end of the process. [Options.MaxBytes] limits the memory. A full
// store drops what would expire next, but never a lease that is held.
//
// Frames are copied when they are passed to the store and when the store returns them, in answers
// and in messages, as if they had come from another machine: a reader that changes its bytes
// changes them for nobody else. If a step's context is done before the step begins, the step
// returns an error and does nothing. After that the context doesn't matter, because no step waits
// for anything.
package memstore
