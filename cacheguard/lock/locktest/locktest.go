package locktest

import (
	"slices"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// Fleet contains the lockers of the processes of a fleet. The fields Lockers and Lease are
// required.
type Fleet struct {
	// Lockers are at least three lockers of the same system. Each has its own connections, as if it
	// were in a separate process. If they have a method Close, with or without an error result, a
	// case may call it.
	Lockers []lock.Locker

	// Lease is the longest time that a lock lasts after its holder died. A sensible value is
	// between 300 ms and 2 s.
	Lease time.Duration

	// Longer opens the same lockers with a longer lease, for a case that had bad luck because the
	// machine was too busy for Lease. If Longer is nil, such a case begins again with this fleet,
	// or fails if it has closed a locker.
	Longer func(lease time.Duration) Fleet

	// Fenced means that the locks have fencing tokens. Without Fenced, tokens must be 0.
	Fenced bool

	// Reentrant means that lock.Context carries a lock.
	Reentrant bool

	// Poll is the longest time until a waiting call notices that a lock was released. Zero means
	// that the system wakes waiting calls.
	Poll time.Duration

	// OneWriter means that a process that is stopped in the middle of a change blocks all others
	// until it goes on, as with SQLite. With OneWriter, a case never stops a process in the middle
	// of a change.
	OneWriter bool

	// Cut cuts Lockers[0] off from the system until heal is called. No data passes in this time.
	// The connections may stay open or break.
	Cut func() (heal func())

	// LoseReply makes the system carry out the next acquisition of Lockers[0], but lose its reply.
	LoseReply func()

	// Steal removes the lock of a name in the system, as an operator or an eviction would.
	Steal func(name string)

	// Process is the configuration that a child process uses to open a locker of the same system.
	// See [Main].
	Process string
}

// TB is the part of [testing.TB] that cases use. Fatalf and Skipf end the goroutine that calls
// them.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Case is one test of a locker. Run may be called many times, each time with a new fleet.
type Case struct {
	Name string
	Rule string // the rule that a locker breaks if it fails the case
	Run  func(t TB, f Fleet)
}

// Run runs all cases as subtests, each with a separate fleet. open may call t.Parallel, because
// most cases spend most of their time waiting.
func Run(t *testing.T, open func(t *testing.T) Fleet) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, open(t)) })
	}
}

// Cases returns all cases.
func Cases() []Case {
	var all []Case
	for _, s := range slices.Concat(
		exclusionCases, tryCases, waitCases, unlockCases, stateCases, nameCases, tokenCases,
		reentrantCases, doCases,
		closeCases, takeCases, cutCases, replyCases, processCases, linearCases,
	) {
		all = append(all, Case{Name: s.name, Rule: s.rule, Run: s.run})
	}
	return all
}

// spec is a case in the form in which the files of this package define it.
type spec struct {
	name string
	rule string
	test func(e *env)
}

// attempts is the number of times that a case is tried if it has bad luck.
const attempts = 5

func (s spec) run(t TB, f Fleet) {
	t.Helper()
	if len(f.Lockers) < 3 {
		t.Fatalf("a fleet has at least three lockers, not %d", len(f.Lockers))
	}
	if f.Lease <= 0 {
		t.Fatalf("a fleet has a lease, not %v", f.Lease)
	}
	for n := 1; ; n++ {
		again := s.once(t, f)
		switch {
		case again == nil:
			return
		case n == attempts:
			t.Fatalf("each of %d attempts failed, the last one: %s\n\tprotects: %s", n,
				again.reason, s.rule)
		default:
			t.Logf("the case begins again: %s", again.reason)
			<-time.After(recovery(n, f))
			if f.Longer != nil {
				f = f.Longer(2 * f.Lease)
			}
		}
	}
}

// recovery is the pause after an attempt that had bad luck. Usually the machine was too busy to
// answer, and is so for some more seconds.
func recovery(attempt int, f Fleet) time.Duration {
	return min(time.Duration(attempt)*f.Lease, 5*time.Second)
}

// once runs the case once and returns why it must begin again, or nil.
func (s spec) once(t TB, f Fleet) (again *badLuck) {
	t.Helper()
	e := newEnv(t, f, s.rule)
	defer e.close()
	return unlucky(func() { s.test(e) })
}

// These are the rules that cases protect.
const (
	exclusive = "mutual exclusion: at any time at most one holder of a name can believe that it has the lock"
	tries     = "TryLock doesn't wait: it gets the lock at once or returns ErrHeld"
	waiting   = "Lock waits until it gets the lock, and it gets the lock soon after the holder unlocks it"
	contexts  = "a context bounds only the acquisition: when it ends, Lock returns its error, and a lock that is held stays held"
	ghosts    = "no ghosts: a call that gave up, or whose reply was lost, doesn't keep others from the lock"
	unlocks   = "Unlock releases the lock once, with any context, and returns the same result each time"
	owners    = "only its holder can unlock a lock: a former holder does no harm to the next one"
	states    = "a lock tells its state: Err is nil while it is held, ErrLost after a loss, and ErrNotHeld after Unlock"
	renewed   = "a lock is held until Unlock, for any number of leases"
	names     = "a name may be any bytes, from 1 to 512 of them"
	apart     = "different names have different locks, and no name waits for another"
	tokens    = "each new holder of a name has a larger fencing token than the holders before it, across all processes"
	reentrant = "a call with the Context of a lock gets the lock again, and no other call does"
	dos       = "Do unlocks however its work ends, and returns ErrLost if the lock was lost during the work"
	continues = "a token continues its lock without a gap, for one caller only, and no other token does"
	seizes    = "a lock that is taken by force belongs to its taker, and the former holder learns of the loss"
	untils    = "Until is the time at which the lock ends if nothing renews it, at most one lease after the request"
	closes    = "Close ends the waiting calls of its locker, the locks of this locker are lost, and other lockers go on"
	trouble   = "if the system fails, calls return an error soon, and the locker recovers by itself"
	crashes   = "if a process dies or stands still, the next holder gets its lock within a lease, and a late holder learns of its loss or is refused"
	linear    = "locks are linearizable: the same results are possible if the calls run one by one, in an order that agrees with time"
)
