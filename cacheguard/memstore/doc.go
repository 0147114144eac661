// Package memstore is a [cacheguard.Store] inside one process. It is for development without Redis
// and for tests. It also works in a testing/synctest bubble, and uses the bubble's clock.
//
//	store := memstore.New(memstore.Options{})
//	defer store.Close()
//	products, err := cacheguard.New(store, cacheguard.Options[Product]{Name: "product"})
//
// It fulfils the whole contract of cacheguard.Store. One mutex takes the place of Redis' single
// thread. So every step is atomic, late fills are refused, failed loads leave a record, and
// messages arrive in the order of the steps that they report. Several caches of the same name on
// one Store behave like the processes of a fleet, and all of them get every message. Only a cache
// that is more than 1,024 messages behind loses some, and is told so.
//
// Its guarantees are limited to this process. If two processes have a memstore each, the stores are
// separate: each process loads every key for itself, and an invalidation in one process doesn't
// reach the other. When the process ends, all data is lost. [Options.MaxBytes] limits the memory. A
// full store drops the items that would expire next, but never a lease that is held.
//
// Frames are copied when they are passed to the store and when the store returns them, in answers
// and in messages, as if they had come from another machine. So if a reader changes its bytes, no
// other reader sees the change. If a step's context ends before the step begins, the step returns
// an error and does nothing. Once the step has begun, the context doesn't matter, because no step
// waits.
package memstore
