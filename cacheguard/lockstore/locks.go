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

// locks are those of the loads of this process that are under way. A lock is kept for as long as
// its load has the lease, as far as is known here: the load may have ended without a word. One
// whose lease was lost, or can't be renewed, has it to its end.
type locks struct {
	store cacheguard.Store

	mu     sync.Mutex // guards what follows
	held   map[load]*kept
	byKey  map[cacheguard.Key]map[load]*kept
	caches map[string]func() // those that are listened to: stop
	closed bool

	work sync.WaitGroup // added to with mu held and closed false
}

// kept is a lock that is held for a load, or that is being got.
type kept struct {
	ready   chan struct{} // closed when it is known whether it is held
	dropped chan struct{} // closed when it is given back, or was not got
	grant   cacheguard.Grant
	ttl     time.Duration // of the lease
	lock    lock.Lock     // nil if it isn't held; read it after ready
	timer   *time.Timer   // drops it; nil if it isn't held
}

func (l *locks) init(store cacheguard.Store) {
	l.store = store
	l.held = make(map[load]*kept)
	l.byKey = make(map[cacheguard.Key]map[load]*kept)
	l.caches = make(map[string]func())
}

// begin returns what is kept for a load, and whether the caller has to get the lock: then it calls
// end.
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
	l.held[of] = k
	if l.byKey[of.key] == nil {
		l.byKey[of.key] = make(map[load]*kept)
	}
	l.byKey[of.key][of] = k
	return k, true
}

// end notes what has become of getting a lock for a load whose lease lasts until then: held is nil
// if it wasn't got.
func (l *locks) end(of load, k *kept, held lock.Lock, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(k.ready)
	switch {
	case l.held[of] != k: // the load's key was changed meanwhile, or this is closed
		if held != nil {
			l.giveBack(held)
		}
	case held == nil:
		l.forget(of)
	default:
		k.lock = held
		k.timer = time.AfterFunc(time.Until(until), func() { l.drop(of) })
	}
}

// extend has a lock be kept for ttl from now.
func (l *locks) extend(of load, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.held[of]; k != nil && k.timer != nil {
		k.timer.Reset(ttl)
	}
}

// keep has a lock be kept to the end of its load, or until a renewal is answered: its load goes on,
// and whether it still has the lease is not known. Fill, Conclude or Release ends it, or the
// locker.
func (l *locks) keep(of load, g cacheguard.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.held[of]; k != nil && k.timer != nil && k.grant.Is(g) {
		k.timer.Stop()
	}
}

// renewed follows what the store said of a lease that was to last until then, and says what the
// load is to be told.
//
// A lease that isn't the load's any more may have been lost by the store. Then the load goes on,
// keeps its lock to its end, and nobody loads beside it: who has the lease now doesn't have the
// lock and is about to give the lease back. If it was a change that has ended the lease, a message
// says so.
func (l *locks) renewed(of load, g cacheguard.Grant, holding cacheguard.Holding, until time.Time, patience time.Duration) cacheguard.Holding {
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
	k.timer.Stop() // from here on Fill, Conclude or Release ends it, or the locker
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
		case <-wait.C: // a change would have been told by now
		}
	}
	return cacheguard.HoldingGone
}

// drop gives back the lock of a load, if it has one, and doesn't wait for it.
func (l *locks) drop(of load) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked(of)
}

// dropLocked is drop with l.mu held.
func (l *locks) dropLocked(of load) {
	k := l.held[of]
	if k == nil {
		return
	}
	l.forget(of)
	if k.timer != nil { // otherwise end finds it forgotten
		k.timer.Stop()
		l.giveBack(k.lock)
	}
}

// forget is called with l.mu held.
func (l *locks) forget(of load) {
	close(l.held[of].dropped)
	delete(l.held, of)
	delete(l.byKey[of.key], of)
	if len(l.byKey[of.key]) == 0 {
		delete(l.byKey, of.key)
	}
}

// giveBack gives a lock back aside; Close waits for those that began before it. It is called with
// l.mu held.
func (l *locks) giveBack(held lock.Lock) {
	if l.closed {
		go unlock(held)
		return
	}
	l.work.Go(func() { unlock(held) })
}

// unlock gives a lock back. What can't be given back ends by itself, and a lock that was lost has
// ended.
func unlock(held lock.Lock) { _ = held.Unlock(context.Background()) }

// listen has the locks of a cache's keys dropped when the keys are changed: their loads are
// nobody's any more, and must not hold up those that begin now.
func (l *locks) listen(cache string) {
	l.mu.Lock()
	_, already := l.caches[cache]
	if already || l.closed {
		l.mu.Unlock()
		return
	}
	l.caches[cache] = func() {}
	l.mu.Unlock()
	stop := l.store.Listen(cache, func(m cacheguard.Message) { // it may be told of something before it returns
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

// changed ends the locks of those loads of a key, in whatever version, that have lost their lease
// by its change. A message may arrive when the next load has its lease already, so the store is
// asked.
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
