package locktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

var linearCases = []spec{
	{"linearizable: Lock, TryLock and Unlock", linear, linearHistory},
	{"linearizable: replies are lost", linear, linearReplies},
}

// history is the record of what callers have observed of the lock of one name.
type history struct {
	sparse bool         // no caller waits, and few callers ask at once
	lossy  bool         // replies are lost
	left   atomic.Int64 // the number of replies that may still be lost
	slow   atomic.Bool  // a call that waits for nobody took long
	tick   atomic.Int64 // orders calls and returns, whatever the clock's resolution

	mu      sync.Mutex // guards the fields below
	ops     []porcupine.Operation
	refused []interval // TryLocks that returned ErrHeld
	// All calls that may have had the lock for a moment, or may be about to get it.
	attempts []interval
	trouble  error
}

// interval is the time span of one call.
type interval struct {
	client       int
	call, ret    int64 // ticks
	began, ended time.Time
}

// lockOp is an operation on a lock.
type lockOp struct {
	kind  string
	hold  int64 // the hold that the operation is about
	token int64
}

const (
	opAcquire = "acquire"
	opEnd     = "end"    // the end of a hold, by Unlock or by a loss
	opRefuse  = "refuse" // a refused TryLock
)

// lockState is the current hold and the last token.
type lockState struct{ hold, token int64 }

func lockModel(fenced bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lockState{} },
		Step: func(state, input, _ any) (bool, any) {
			s, op := state.(lockState), input.(lockOp)
			switch op.kind {
			case opAcquire:
				return s.hold == 0 && (!fenced || op.token > s.token), lockState{op.hold, op.token}
			case opRefuse:
				return s.hold != 0, s
			default:
				if s.hold == op.hold {
					s.hold = 0
				}
				return true, s
			}
		},
	}
}

func linearHistory(e *env) { e.linearize(&history{}, &history{sparse: true}) }

func linearReplies(e *env) {
	e.needsLoss()
	crowded, sparse := &history{lossy: true}, &history{lossy: true, sparse: true}
	crowded.left.Store(3)
	sparse.left.Store(3)
	e.linearize(crowded, sparse)
}

// linearize lets callers of all lockers produce these histories, each for one name.
func (e *env) linearize(all ...*history) {
	e.Helper()
	histories := make(map[string]*history)
	for _, h := range all {
		histories[e.name()] = h
	}
	e.record(histories)
	slow := slices.ContainsFunc(all, func(h *history) bool { return h.slow.Load() })
	for _, h := range all {
		h.check(e, slow)
	}
}

// record lets callers acquire and unlock in all ways.
func (e *env) record(histories map[string]*history) {
	e.Helper()
	const each, rounds = 3, 12
	began := time.Now()
	all := e.crew()
	for i, l := range e.fleet.Lockers {
		for n := range each {
			client := i*each + n
			all.do(func() {
				// If waits take long, a caller makes fewer rounds, so that the crew ends in time.
				for n := 0; n < rounds &&
					(n < 3 && time.Since(began) < e.limit/2 ||
						time.Since(began) < 3*time.Second); n++ {
					for name, h := range histories {
						h.once(e, client, l, name)
					}
				}
			})
		}
	}
	all.end()
}

// once acquires and unlocks in a random way.
func (h *history) once(e *env, client int, l lock.Locker, name string) {
	limit, step, waits := e.limit, l.TryLock, false
	switch how := rand.IntN(4); {
	case h.sparse:
		e.pass(time.Duration(rand.IntN(3000)) * time.Microsecond)
	case how == 0: // leaves early
		limit, step, waits = time.Duration(rand.IntN(2000))*time.Microsecond, l.Lock, true
	case how == 3:
		step, waits = l.Lock, true
	}
	ctx, cancel := context.WithTimeout(e.ctx, limit)
	defer cancel()
	if h.lossy && l == e.a && rand.IntN(4) == 0 && h.left.Add(-1) >= 0 {
		e.fleet.LoseReply() // the reply of this call, or of another running one
	}
	var held lock.Lock
	at, err := h.time(client, func() (err error) { held, err = step(ctx, name); return err })
	if !waits {
		h.noteSlow(e, at)
	}
	h.mu.Lock()
	h.attempts = append(h.attempts, at)
	h.mu.Unlock()
	if err != nil {
		if limit == e.limit && ctx.Err() != nil {
			err = fmt.Errorf("%w within %v: %w", errNever, limit, err)
		}
		h.failed(at, err, e.fleet.Lease, limit < e.limit)
		return
	}
	hold := at.ret // a unique number
	h.add(at, lockOp{kind: opAcquire, hold: hold, token: held.Token()})
	e.pass(time.Duration(rand.IntN(600)) * time.Microsecond)

	ctx, cancel = context.WithTimeout(e.ctx, e.limit)
	defer cancel()
	if rand.IntN(8) == 0 { // don't wait for the reply
		cancel()
	}
	end, err := h.time(client, func() error { return held.Unlock(ctx) })
	h.noteSlow(e, end)
	switch {
	case err == nil:
	case errors.Is(err, lock.ErrLost):
		// The lock was lost at some time after it was acquired, maybe before its caller knew of it.
		end.call = at.call
	default: // the lock is unlocked later, or expires
		end.ret, end.ended = unknown, end.ended.Add(lasting(e.fleet.Lease))
		h.mu.Lock()
		h.attempts = append(h.attempts, end)
		h.mu.Unlock()
	}
	h.add(end, lockOp{kind: opEnd, hold: hold})
}

// noteSlow records whether a call that waits for nobody took long. The system may carry out a
// request of such a call after the call has sent the request again and has returned.
func (h *history) noteSlow(e *env, at interval) {
	if at.ended.Sub(at.began) > e.fleet.Lease/4 {
		h.slow.Store(true)
	}
}

// unknown is the return time of a call that may take effect at any time.
const unknown = int64(1) << 40

func (h *history) time(client int, do func() error) (at interval, err error) {
	at.client, at.call, at.began = client, h.tick.Add(1), time.Now()
	err = do()
	at.ret, at.ended = h.tick.Add(1), time.Now()
	return at, err
}

func (h *history) add(at interval, op lockOp) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops,
		porcupine.Operation{ClientId: at.client, Input: op, Call: at.call, Return: at.ret})
}

// failed records an acquisition that returned an error. Its outcome is unknown: it may have got a
// lock that exists for a lease.
func (h *history) failed(at interval, err error, lease time.Duration, leaves bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, lock.ErrHeld):
		h.refused = append(h.refused, at)
		return
	case errors.Is(err, errNever), !h.lossy &&
		!(leaves && errors.Is(err, context.DeadlineExceeded)):
		h.trouble = err
	}
	last := &h.attempts[len(h.attempts)-1]
	for i := range h.attempts {
		if h.attempts[i].call == at.call {
			last = &h.attempts[i]
		}
	}
	last.ret, last.ended = unknown, at.ended.Add(lasting(lease))
}

// lasting returns how long a lock lasts that nobody gives back: some systems add a hundredth of the
// lease, for clocks that run at different rates.
func lasting(lease time.Duration) time.Duration { return lease + lease/50 }

// excused reports whether a refused TryLock overlapped another call that was about to get the lock
// or to give it back. Then TryLock may return ErrHeld although nobody is known to hold the lock.
// For example, two callers that ask at once may each get half of the votes.
func (h *history) excused(at interval) bool {
	for _, other := range h.attempts {
		if other.call != at.call && other.call < at.ret &&
			(other.ret == unknown && other.ended.After(at.began) ||
				other.ret != unknown && other.ret > at.call) {
			return true
		}
	}
	return false
}

// String lists the operations in the order of their calls, and then the attempts, which may excuse
// refusals.
func (h *history) String() string {
	ops := slices.SortedFunc(slices.Values(h.ops), func(a, b porcupine.Operation) int {
		return cmp.Compare(a.Call, b.Call)
	})
	var lines strings.Builder
	for _, op := range ops {
		fmt.Fprintf(&lines, "client %d, %d to %d: %+v\n",
			op.ClientId, op.Call, op.Return, op.Input)
	}
	for _, at := range h.attempts {
		fmt.Fprintf(&lines, "attempt of client %d, %d to %d: %v to %v\n",
			at.client, at.call, at.ret, at.began.Format("05.000000"), at.ended.Format("05.000000"))
	}
	return lines.String()
}

// check checks the history. A request that was carried out late may acquire the lock for nobody,
// for a lease. So if calls were slow and only refusals can't be explained, the case has bad luck.
func (h *history) check(e *env, slow bool) {
	e.Helper()
	known, judged := len(h.ops), 0
	for _, at := range h.refused {
		if !h.excused(at) {
			judged++
			h.add(at, lockOp{kind: opRefuse})
		}
	}
	acquired := 0
	for _, op := range h.ops {
		if op.Input.(lockOp).kind == opAcquire {
			acquired++
		}
	}
	e.Logf("%d acquisitions, %d refusals, of which %d met nobody else who asked", acquired,
		len(h.refused), judged)
	model := lockModel(e.fleet.Fenced)
	switch porcupine.CheckOperationsTimeout(model, h.ops, e.limit) {
	case porcupine.Illegal:
		if slow && porcupine.CheckOperationsTimeout(model, h.ops[:known], e.limit) == porcupine.Ok {
			e.unlucky("calls were refused when nobody is known to have had the lock")
		}
		e.Fatalf("the history of %d operations is not linearizable:\n%s", len(h.ops), h)
	case porcupine.Unknown:
		e.Logf("the machine is too slow to check the history")
	}
	if !slow && errors.Is(h.trouble, errNever) {
		e.Fatalf("%v", h.trouble)
	}
	if h.trouble != nil {
		e.unlucky("an acquisition: %v", h.trouble)
	}
}
