// Package memstore is a cacheguard.Store inside one process: for development without Redis, and for
// tests, also in a testing/synctest bubble, whose clock it follows.
//
//	store := memstore.New(memstore.Options{})
//	defer store.Close()
//	products, err := cacheguard.New(store, cacheguard.Options[Product]{Name: "product"})
//
// It keeps the whole contract of the port, with one mutex in the place of Redis' single thread:
// every step is atomic, late fills are refused, failures leave a record, messages come in the order
// of the steps they tell of. Several caches of the same name on one Store play the processes of a
// fleet, and all of them get every message.
//
// What it doesn't promise: anything beyond this process. Two processes with a memstore each know
// nothing of each other, so each of them loads every key for itself, and an invalidation in one
// doesn't reach the other. Nothing survives the end of the process. Memory is bounded by
// Options.MaxBytes; a store that is full drops what would expire next, and never a lease that is
// held.
//
// Frames are copied when they are handed in and when they are handed out, in answers and in
// messages, as if they had come from another machine: what one reader does with its bytes is seen
// by nobody else. A context that is already done makes a step an error and nothing is done; after
// that the context doesn't matter, for no step waits for anything.
package memstore
