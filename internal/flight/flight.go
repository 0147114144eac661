// Package flight lets callers of one process that want the same result share the work for it. Each
// caller waits only as long as its own context allows.
//
// It is not built on golang.org/x/sync/singleflight, because singleflight can't keep this package's
// promises. With singleflight all callers depend on the first caller's context, and a caller can't
// leave. A panic with DoChan waiters ends the process, and runtime.Goexit leaves the waiters
// without a result. Work goes on when no caller waits for it. A newcomer can join a call that was
// forgotten or is being cancelled. In this package the work is separate from the waiting. The first
// caller of a key becomes the leader. The leader does the work on its own goroutine, or after
// DetachTo on another goroutine, and ends the flight with Land. All other callers call Wait.
package flight

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// ErrAbandoned is the cause that cancels work for which no caller waits any more. No caller sees
// this error, because no caller is left.
var ErrAbandoned = errors.New("cacheguard: every caller has left")

const shards = 32 // so that flights of different keys seldom meet at one lock

// Group is a set of flights, at most one open flight for each key. The zero Group is ready to use
// and safe for concurrent use.
type Group[T any] struct {
	shard [shards]shard[T]
}

type shard[T any] struct {
	mu   sync.Mutex // guards open, and the marked fields of this shard's flights
	open map[string]*Flight[T]
	_    [48]byte // a cache line for each lock
}

// Flight is one piece of shared work and the callers that wait for it.
type Flight[T any] struct {
	shard *shard[T]
	key   string
	// When the flight was begun, as a moment of Now; its result was not found before this moment.
	born uint64

	// guarded by shard.mu
	//
	// The number of members that want the result: callers, including the leader, and work that
	// holds itself.
	members int32
	work    int32         // how many members are work
	open    bool          // newcomers may join
	landed  bool          // result is final
	urged   bool          // a member can't wait until the work gets a slot
	done    chan struct{} // closed when landed; made when a member waits
	next    *Flight[T]    // the flight that members have gone on with
	detached
	announced
	offer *offer[T] // nil: nobody has made one or waits for one

	result T      // set once, before done is closed
	asOf   uint64 // a moment of Now; result includes all changes from before this moment
}

// detached is the state of work that goes on without the leader's goroutine.
type detached struct {
	since atomic.Pointer[time.Time] // set once, by DetachTo

	// guarded by shard.mu
	abandon func() // cancels the work
	urge    func() // called when a member can't wait until the work gets a slot
}

// now orders the beginnings of the flights of all groups and the moments of Now. A moment is now
// plus 1, because 0 is no moment: it means any flight.
var now atomic.Uint64

// Now returns a moment for JoinSince, which is never 0. All existing flights were begun before this
// moment.
func Now() uint64 { return now.Load() + 1 }

// Tick returns a new moment that is later than all moments that Now has returned so far.
func Tick() uint64 { return now.Add(1) + 1 }

// Join makes the caller a member of the key's open flight, or of a new flight that the caller
// leads. A leader must make sure that Land is called on every path. All other callers call Wait. At
// most limit callers can be members of a flight (0: no limit; work that holds itself is not
// counted). If the flight already has limit callers, Join returns nil.
func (g *Group[T]) Join(key string, limit int) (f *Flight[T], leader bool) {
	return g.join(key, limit, 0, 0)
}

// JoinSince is Join for a caller that must not get a result from before a moment. If the open
// flight was begun before the moment, JoinSince seals it and begins a new flight. The moment is a
// result of Now, or 0 for any flight.
func (g *Group[T]) JoinSince(key string, limit int, moment uint64) (f *Flight[T], leader bool) {
	return g.join(key, limit, moment, 0)
}

// JoinBegun is JoinSince for a caller that already has a value from an earlier moment. If the
// caller leads the flight, the flight is treated as begun at the moment begun. 0 means now.
func (g *Group[T]) JoinBegun(
	key string, limit int, moment, begun uint64,
) (f *Flight[T], leader bool) {
	return g.join(key, limit, moment, begun)
}

func (g *Group[T]) join(key string, limit int, moment, begun uint64) (f *Flight[T], leader bool) {
	s := g.of(key)
	s.mu.Lock()
	if f = s.open[key]; f != nil && f.born <= moment && moment > 0 {
		f.seal()
		f = nil
	}
	switch {
	case f == nil:
		f, leader = s.begin(key, begun), true
	case limit > 0 && int(f.members-f.work) >= limit:
		f = nil
	default:
		f.enter()
	}
	s.mu.Unlock()
	return f, leader
}

// begin opens a flight. The caller holds mu.
//
//go:noinline
func (s *shard[T]) begin(key string, begun uint64) *Flight[T] {
	if s.open == nil {
		s.open = make(map[string]*Flight[T])
	}
	if begun == 0 {
		begun = Tick()
	}
	f := &Flight[T]{shard: s, key: key, members: 1, open: true, born: begun}
	s.open[key] = f
	return f
}

// JoinNext is JoinSince for a member of f, if the result of f was found before the moment. The
// moment is a result of Now from before the member joined f. All such members of f share one
// further flight, even if they ask late and that flight has already landed. No limit applies,
// because these members were already admitted to f.
func (g *Group[T]) JoinNext(f *Flight[T], moment uint64) (next *Flight[T], leader bool) {
	s := f.shard
	s.mu.Lock()
	if next = f.next; next != nil && (next.landed || next.members > 0) {
		next.enter()
		s.mu.Unlock()
		return next, false
	}
	s.mu.Unlock()
	// Only a flight that begins now is late enough for every member.
	if next, leader = g.join(f.key, 0, moment, 0); leader {
		s.mu.Lock()
		f.next = next
		s.mu.Unlock()
	}
	return next, leader
}

// enter makes the caller a member. The caller holds mu.
func (f *Flight[T]) enter() {
	if f.done == nil {
		f.done = make(chan struct{})
		if f.landed {
			close(f.done)
		}
	}
	f.members++
}

// Solo returns a flight that the caller leads and that no other caller can join.
func Solo[T any]() *Flight[T] { return &Flight[T]{shard: &shard[T]{}, members: 1} }

// Seal closes the key's flight to newcomers; its members still get its result.
func (g *Group[T]) Seal(key string) {
	s := g.of(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.open[key]; f != nil {
		f.seal()
	}
}

// SealAll closes every open flight to newcomers.
func (g *Group[T]) SealAll() {
	for i := range g.shard {
		s := &g.shard[i]
		s.mu.Lock()
		for _, f := range s.open {
			f.seal()
		}
		s.mu.Unlock()
	}
}

// Count returns the number of open flights and of their callers.
func (g *Group[T]) Count() (flights, callers int) {
	for i := range g.shard {
		s := &g.shard[i]
		s.mu.Lock()
		flights += len(s.open)
		for _, f := range s.open {
			callers += int(f.members - f.work)
		}
		s.mu.Unlock()
	}
	return flights, callers
}

// Callers returns how many callers wait for the flight.
func (f *Flight[T]) Callers() int {
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	return int(f.members - f.work)
}

func (g *Group[T]) of(key string) *shard[T] { return &g.shard[maphash.String(seed, key)%shards] }

// seed spreads the keys of all groups over their shards, differently in each process.
var seed = maphash.MakeSeed()

// seal removes the flight from the map. The caller holds shard.mu.
func (f *Flight[T]) seal() {
	if f.open {
		f.open = false
		delete(f.shard.open, f.key)
	}
}

// Seal closes this flight to newcomers; its members still get its result.
func (f *Flight[T]) Seal() {
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	f.seal()
}

// DetachTo lets the flight's work go on without the leader's goroutine. The leader then waits like
// the other callers. abandon is called when the last member leaves, or at once if the last member
// has already left. urge is called when a member can't wait until the work gets a slot. DetachTo
// may be called again when another goroutine takes over the work.
func (f *Flight[T]) DetachTo(abandon, urge func()) {
	now := time.Now()
	f.since.CompareAndSwap(nil, &now)
	f.shard.mu.Lock()
	f.abandon, f.urge = abandon, urge
	if f.done == nil {
		f.done = make(chan struct{})
	}
	left, urged := f.members == 0 && !f.landed, f.urged
	f.shard.mu.Unlock()
	if urged {
		urge()
	}
	if left {
		abandon()
	}
}

// Detached returns when DetachTo was first called, or the zero Time if it was not.
func (f *Flight[T]) Detached() (at time.Time) {
	if detached := f.since.Load(); detached != nil {
		at = *detached
	}
	return at
}

// Urge tells the work that a member can't wait until the work gets a slot.
func (f *Flight[T]) Urge() {
	f.shard.mu.Lock()
	urge := f.urge
	if f.urged {
		urge = nil
	}
	f.urged = true
	f.shard.mu.Unlock()
	if urge != nil {
		urge()
	}
}

// Done returns a channel that is closed when the flight has landed. Call Done only after DetachTo.
func (f *Flight[T]) Done() <-chan struct{} { return f.done }

// Wait returns the flight's result, or ctx's error as soon as ctx ends. After an error the caller
// is no longer a member. If the flight has already landed, Wait returns the result.
func (f *Flight[T]) Wait(ctx context.Context) (result T, err error) {
	got, err := f.Result(ctx)
	if err == nil {
		result = *got
	}
	return result, err
}

// Await waits until the flight has landed or ended is closed. ended is the Done channel of a
// context. After Await, call Outcome to learn which of the two happened. Await takes the channel
// and not the context so that it is inlined, because thousands of goroutines wait in it at the same
// time, each on its own stack.
func (f *Flight[T]) Await(ended <-chan struct{}) {
	if ended == nil { // a select over two channels costs twice as much, for each of the callers
		<-f.done
		return
	}
	select {
	case <-f.done:
	case <-ended:
	}
}

// Result is like Wait, but returns a pointer and not a copy. All members share the result, so they
// must not change it.
func (f *Flight[T]) Result(ctx context.Context) (*T, error) {
	f.Await(ctx.Done())
	return f.Outcome(ctx)
}

// Outcome returns the same values as Result. Call it after Await.
func (f *Flight[T]) Outcome(ctx context.Context) (*T, error) {
	select {
	case <-f.done:
		return &f.result, nil
	default:
	}
	if f.Leave() {
		return nil, ctx.Err()
	}
	return &f.result, nil
}

// Since reports whether the result was found after a moment of Now. Only a member that has got the
// result may call it.
func (f *Flight[T]) Since(moment uint64) bool { return f.asOf > moment }

// Hold makes the work a member of its own flight. So the work goes on even if all callers have
// left.
func (f *Flight[T]) Hold() {
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	f.members++
	f.work++
}

// LeadAsWork changes a leader that is not a caller into work that holds itself.
func (f *Flight[T]) LeadAsWork() {
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	f.work++
}

// LetGo ends the membership of the work, as Leave ends the membership of a caller. It reports
// whether no member is left.
func (f *Flight[T]) LetGo() (last bool) {
	_, last = f.leave(1)
	return last
}

// Leave ends the caller's membership. If the caller was the last member, the flight is sealed and
// its work is cancelled. Sealing keeps callers from joining work that is being cancelled. If the
// flight has already landed, Leave returns false.
func (f *Flight[T]) Leave() bool {
	landed, _ := f.leave(0)
	return !landed
}

func (f *Flight[T]) leave(work int32) (landed, last bool) {
	f.shard.mu.Lock()
	f.work -= work
	if f.landed {
		f.shard.mu.Unlock()
		return true, false
	}
	f.members--
	last = f.members == 0
	abandon := f.abandon
	if last {
		f.seal()
	}
	f.shard.mu.Unlock()
	if last && abandon != nil {
		abandon()
	}
	return false, last
}

// Land ends the flight with its result, which all members get. Only the first call has an effect.
func (f *Flight[T]) Land(result T) { f.LandAsOf(result, f.born) }

// LandAsOf is Land for a result that was found after the flight was begun, and not before the
// moment. The moment is a result of Tick.
func (f *Flight[T]) LandAsOf(result T, moment uint64) {
	f.shard.mu.Lock()
	if f.landed {
		f.shard.mu.Unlock()
		return
	}
	f.seal()
	f.landed = true
	f.result, f.asOf = result, moment
	done := f.done
	f.shard.mu.Unlock()
	if done != nil { // outside the lock, because it wakes all members
		close(done)
	}
}
