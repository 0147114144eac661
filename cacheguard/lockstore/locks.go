package lockstore

import (
	"context"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// load is one load of this process.
type load struct {
	key   cacheguard.Key
	token cacheguard.ID
}

// locks are the locks of the running loads of this process. Usually a lock is given back when its
// load ends. A load may also end without telling the store. Therefore the lock is given back, too,
// when the lease is over without a renewal. If a renewal fails, or shows that the store has lost
// the lease, the lock is kept until the load ends.
type locks struct {
	store cacheguard.Store

	mu    sync.Mutex // guards the fields below
	held  map[load]*kept
	byKey map[cacheguard.Key]map[load]*kept
	// For each cache to which the process listens: the function that stops listening.
	caches map[string]func()
	closed bool

	// What Close waits for. It grows only while mu is held. Once closed is set, only end adds to
	// it, before end's own Done.
	work sync.WaitGroup
}

// kept is a lock that is held for a load, or that is being acquired.
type kept struct {
	ready   chan struct{} // closed when it is known whether the lock is held
	dropped chan struct{} // closed when the lock is given back, or was not acquired
	grant   cacheguard.Grant
	ttl     time.Duration // the TTL of the lease
	lock    lock.Lock     // nil if the lock isn't held; read it after ready
	timer   *time.Timer   // drops the lock; nil if it isn't held
}

func (l *locks) init(store cacheguard.Store) {
	l.store = store
	l.held = make(map[load]*kept)
	l.byKey = make(map[cacheguard.Key]map[load]*kept)
	l.caches = make(map[string]func())
}

// begin returns the kept lock of a load, and whether the caller has to acquire it. If the caller
// has to acquire the lock, it must call end afterwards.
func (l *locks) begin(of load, g cacheguard.Grant, ttl time.Duration) (k *kept, first bool) {
	l.listen(of.key.Cache)
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.held[of]; k != nil {
		return k, false
	}
	k = &kept{grant: g, ttl: ttl, ready: make(chan struct{}), dropped: make(chan struct{})}
	if l.closed {
		close(k.ready)
		return k, false
	}
	l.work.Add(1) // end says Done
	l.held[of] = k
	if l.byKey[of.key] == nil {
		l.byKey[of.key] = make(map[load]*kept)
	}
	l.byKey[of.key][of] = k
	return k, true
}

// end records the result of acquiring a lock for a load whose lease lasts until the given time.
// held is nil if the lock was not acquired.
func (l *locks) end(of load, k *kept, held lock.Lock, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.work.Done()
	defer close(k.ready)
	switch {
	case l.held[of] != k: // the load has ended or its key was changed meanwhile, or locks is closed
		if held != nil {
			l.work.Go(func() { unlock(held) })
		}
	case held == nil:
		l.forget(of)
	default:
		k.lock = held
		k.timer = time.AfterFunc(time.Until(until), func() { l.drop(of) })
	}
}

// extend keeps a lock for ttl from now.
func (l *locks) extend(of load, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.held[of]; k != nil && k.timer != nil {
		k.timer.Reset(ttl)
	}
}

// keep keeps a lock until its load ends or a renewal gets an answer, because the load goes on, and
// it is not known whether it still has the lease. Fill, Conclude, Release or the locker ends the
// lock.
func (l *locks) keep(of load, g cacheguard.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.held[of]; k != nil && k.timer != nil && k.grant.Is(g) {
		k.timer.Stop()
	}
}

// renewed handles the store's answer to a renewal, and returns the answer for the load. until is
// the time at which the renewed lease ends.
//
// If the load no longer has the lease, the store may have lost the lease. Then the load goes on and
// keeps its lock to its end. No other load runs beside it, because the process that has the lease
// now doesn't get the lock and gives the lease back. If a change of the key has ended the lease, a
// message reports the change and ends the lock. If another load has the lease, renewed waits for
// this message for the time patience, to tell the two cases apart.
func (l *locks) renewed(
	of load, g cacheguard.Grant, holding cacheguard.Holding, until time.Time,
	patience time.Duration,
) cacheguard.Holding {
	l.mu.Lock()
	k := l.held[of]
	if k == nil || k.timer == nil || !k.grant.Is(g) {
		l.mu.Unlock()
		return holding
	}
	if holding == cacheguard.HoldingMine {
		k.timer.Reset(time.Until(until))
		l.mu.Unlock()
		return holding
	}
	k.timer.Stop() // from here on Fill, Conclude, Release or the locker ends the lock
	l.mu.Unlock()
	if holding == cacheguard.HoldingOther {
		wait := time.NewTimer(patience)
		defer wait.Stop()
		select {
		case <-k.dropped:
			return holding
		case <-k.lock.Lost():
			l.drop(of)
			return holding
		case <-wait.C: // the message of a change would have arrived by now
		}
	}
	return cacheguard.HoldingGone
}

// drop gives back the lock of a load, if it has one. It doesn't wait for the locker.
func (l *locks) drop(of load) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked(of)
}

// dropLocked is like drop. The caller must hold l.mu.
func (l *locks) dropLocked(of load) {
	k := l.held[of]
	if k == nil {
		return
	}
	l.forget(of)
	if k.timer != nil { // without a timer the lock is still being acquired, and end gives it back
		k.timer.Stop()
		l.giveBack(k.lock)
	}
}

// forget removes the lock of a load from the table. The caller must hold l.mu.
func (l *locks) forget(of load) {
	close(l.held[of].dropped)
	delete(l.held, of)
	delete(l.byKey[of.key], of)
	if len(l.byKey[of.key]) == 0 {
		delete(l.byKey, of.key)
	}
}

// giveBack gives a lock back in the background. Close waits for the releases that began before it.
// The caller must hold l.mu.
func (l *locks) giveBack(held lock.Lock) {
	if l.closed {
		go unlock(held)
		return
	}
	l.work.Go(func() { unlock(held) })
}

// unlock gives a lock back. An error doesn't matter: a lock that can't be given back expires, and
// one that was lost has ended.
func unlock(held lock.Lock) { _ = held.Unlock(context.Background()) }

// listen drops the locks of a cache's keys when the keys are changed. The loads of these keys no
// longer have a lease, and must not hold up loads that begin now.
func (l *locks) listen(cache string) {
	l.mu.Lock()
	_, already := l.caches[cache]
	if already || l.closed {
		l.mu.Unlock()
		return
	}
	l.caches[cache] = func() {}
	l.mu.Unlock()
	// A message may arrive before Listen returns.
	stop := l.store.Listen(cache, func(m cacheguard.Message) {
		if m.Kind == cacheguard.MessageChanged {
			l.changed(cacheguard.Key{Cache: cache, Key: m.Key})
		}
	})
	l.mu.Lock()
	closed := l.closed
	l.caches[cache] = stop
	l.mu.Unlock()
	if closed {
		stop()
	}
}

// A change of a key ends the leases of its running loads, in all versions. changed ends the locks
// of these loads. The message may arrive after the next load got its lease, so changed asks the
// store which load has the lease.
func (l *locks) changed(key cacheguard.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	for key.Version = range uint8(cacheguard.Versions) {
		for of, k := range l.byKey[key] {
			l.work.Go(func() {
				holding, err := l.store.Renew(context.Background(), of.key, k.grant, k.ttl)
				if err == nil && holding == cacheguard.HoldingMine {
					return
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				if l.held[of] == k {
					l.dropLocked(of)
				}
			})
		}
	}
}

func (l *locks) close() {
	l.mu.Lock()
	for of := range l.held {
		l.dropLocked(of)
	}
	l.closed = true
	stops := l.caches
	l.caches = make(map[string]func())
	l.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
	l.work.Wait()
}
