package systemtest_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// fault is one thing that goes wrong in a soak.
type fault struct {
	after time.Duration // the pause before it, from the end of the one before
	kind  faultKind
	who   int           // the member whose connections it concerns, if it does
	lasts time.Duration // if it does
	pick  int           // of a key, or of a step
}

func (f fault) String() string {
	return fmt.Sprintf("%v later: %s, member %d, %v, pick %d", f.after, f.kind, f.who, f.lasts,
		f.pick)
}

type faultKind string

const (
	faultCut       faultKind = "connections cut"
	faultRefuse    faultKind = "connections refused"
	faultBlackhole faultKind = "blackhole"
	faultDropReply faultKind = "a step's reply lost"
	faultScripts   faultKind = "scripts flushed"
	faultLease     faultKind = "a lease evicted"
	faultValue     faultKind = "a value evicted"
	faultGarbage   faultKind = "garbage over a value"
	faultPause     faultKind = "server stopped and continued"
	faultFlush     faultKind = "everything flushed"
	faultPubSub    faultKind = "subscriptions killed"
	faultMemory    faultKind = "out of memory"
)

// faultKinds are all kinds, with the most that they last, 0 for those that are over at once.
var faultKinds = []struct {
	kind faultKind
	most time.Duration
}{
	{faultCut, 0},
	{faultRefuse, 500 * time.Millisecond},
	{faultBlackhole, time.Second},
	{faultDropReply, time.Second},
	{faultScripts, 0},
	{faultLease, 0},
	{faultValue, 0},
	{faultGarbage, 0},
	{faultPause, 500 * time.Millisecond},
	{faultFlush, 0},
	{faultPubSub, 0},
	{faultMemory, 500 * time.Millisecond},
}

// forecast is the plan of faults that a seed stands for, for so long. Those of a longer one begin
// with those of a shorter one. Every few faults there is time to get back to normal and be seen to.
func forecast(seed uint64, members int, lasts time.Duration) (plan []fault) {
	const few = 8
	r := rand.New(rand.NewPCG(seed, 0))
	between := func(least, most time.Duration) time.Duration {
		return (least + time.Duration(r.Int64N(int64(most-least)))).Round(time.Millisecond)
	}
	for at := time.Duration(0); ; {
		kind := faultKinds[r.IntN(len(faultKinds))]
		f := fault{
			after: between(20*time.Millisecond, 800*time.Millisecond), kind: kind.kind,
			who: r.IntN(members), pick: r.IntN(1 << 16),
		}
		if kind.most > 0 {
			f.lasts = between(kind.most/10, kind.most)
		}
		if len(plan)%few == few-1 {
			f.after = recovery + between(time.Second, 2*time.Second)
		}
		if at += f.after + f.lasts; at > lasts {
			return plan
		}
		plan = append(plan, f)
	}
}

// recovery is for how long after a fault things need not be normal: messages are back after 3
// seconds at the latest.
const recovery = 4 * time.Second

// weather knows when things went wrong, and keeps a diary of that.
type weather struct {
	mu     sync.Mutex // guards all below
	began  time.Time
	storms []span
	still  []span // of the machine
	diary  []string
}

type span struct{ from, to time.Time } // to is zero while it lasts

func (w *weather) note(format string, args ...any) {
	const most = 400
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.diary) == most {
		w.diary = append(w.diary[:0], w.diary[most/2:]...)
	}
	w.diary = append(w.diary,
		fmt.Sprintf("%8.3f ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

// during notes that a fault goes on until the function has returned.
func (w *weather) during(f fault, do func() error) {
	w.mu.Lock()
	n := len(w.storms)
	w.storms = append(w.storms, span{from: time.Now()})
	w.mu.Unlock()
	w.note("%s, member %d, %v, pick %d", f.kind, f.who, f.lasts, f.pick)
	err := do()
	w.mu.Lock()
	w.storms[n].to = time.Now()
	w.mu.Unlock()
	if err != nil {
		w.note("%s: %v", f.kind, err)
	} else if f.lasts > 0 {
		w.note("%s is over", f.kind)
	}
}

// stood notes a standstill of the machine that has just ended.
func (w *weather) stood(still time.Duration) {
	w.note("the machine stood still for %v", still)
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.still = append(w.still, span{now.Add(-still - standstill), now})
}

// calm reports whether nothing went wrong between two moments.
func (w *weather) calm(from, to time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !overlaps(w.storms, from, to)
}

// ran reports whether the machine ran all the time between two moments.
func (w *weather) ran(from, to time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !overlaps(w.still, from, to)
}

func overlaps(spans []span, from, to time.Time) bool {
	for _, s := range spans {
		if s.from.Before(to) && (s.to.IsZero() || s.to.After(from)) {
			return true
		}
	}
	return false
}

// last returns the end of the diary.
func (w *weather) last(n int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.diary[max(0, len(w.diary)-n):], "\n")
}
