package program

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/bench/internal/slowdb"
)

var _ = []struct{}{
	known[nothing](openContender{}), known[burstAnswer](burst{}), known[nothing](invalidate("")),
}

// openContender opens a contender. The other jobs of this file use it.
type openContender struct {
	Redis, Origin, Contender, Locks string
	Replica                         int
	Setting                         setting
	Backoff                         time.Duration
}

func (o openContender) do(ctx context.Context, w *worker) (_ nothing, err error) {
	ctx = context.WithoutCancel(ctx) // the contender outlives the job
	chosen, err := contender.Named(w.peers.known(), o.Contender)
	if err != nil {
		return nothing{}, err
	}
	if w.origin, err = slowdb.Dial(ctx, o.Origin, o.Replica); err != nil {
		return nothing{}, err
	}
	w.atEnd(func() { _ = w.origin.Close() })
	rdb := w.dial(redis.Options{Addr: o.Redis})
	if err := fillPool(ctx, rdb); err != nil {
		return nothing{}, err
	}
	w.meter, w.size = &meter{}, o.Setting.Size
	rdb.AddHook(w.meter)
	w.Protection, err = chosen[0].Open(ctx, contender.Rig{
		Redis: rdb, Load: w.load, Renew: w.renew, Locks: o.Locks,
		TTL: o.Setting.TTL, LockTTL: o.Setting.LockTTL, PollTime: o.Setting.Poll,
		Backoff: o.Backoff,
	})
	if err == nil {
		w.atEnd(func() { _ = w.Protection.Close() })
	}
	return nothing{}, err
}

// load asks the origin, and makes a value from the version that the origin returns.
func (w *worker) load(ctx context.Context, key string) (string, bool, error) {
	return w.renew(ctx, key, "")
}

// renew is like load, for a contender that already has a value.
func (w *worker) renew(ctx context.Context, key, old string) (string, bool, error) {
	replaces, _ := versionOf(old, w.size)
	v, err := w.origin.Renew(ctx, key, int64(replaces))
	if err != nil || v == 0 {
		return "", false, err
	}
	return version(v).value(w.size), true, nil
}

// burst is a job: callers ask at the same moment.
type burst struct {
	Key      string
	Keys     int // if more than 0: the number of keys; their names are Key with a number behind it
	Callers  int
	At       int64         // nanoseconds since 1970; all processes are on one machine
	Patience time.Duration // the time after which a caller is called stuck
}

// burstAnswer is the result of a burst.
type burstAnswer struct {
	Callers []callerAnswer
	Error   string // one of the callers' errors
	Trips   int64  // round trips to Redis during the burst
}

// callerAnswer is the answer that one caller got, and its time.
type callerAnswer struct {
	Took    int64 // nanoseconds from the burst's moment
	Version int64 // 0: the answer was that there is no value; or one of the next two constants
}

const (
	gotError = -1
	gotStuck = -2
)

// keyOf returns the key for which the i-th caller asks. keys is the number of keys, or 0 for one
// key.
func keyOf(key string, keys, i int) string {
	if keys == 0 {
		return key
	}
	return key + ":" + strconv.Itoa(i%keys)
}

// When the patience ends, do doesn't wait for callers that have no answer yet, because not every
// contender looks at a caller's context.
func (b burst) do(ctx context.Context, w *worker) (burstAnswer, error) {
	before := w.meter.trips.Load()
	runtime.GC() // so that no contender has a collection in the middle of the burst
	at := time.Unix(0, b.At)
	var mu sync.Mutex // guards the fields below
	answers := make([]callerAnswer, b.Callers)
	problem, left := "", b.Callers
	done, gate := make(chan struct{}), make(chan struct{})
	for i := range answers {
		answers[i].Version = gotStuck
		go func() {
			// Like the context of a server's request.
			ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
			defer cancel()
			standLikeARequest()
			<-gate
			value, found, err := w.Get(ctx, keyOf(b.Key, b.Keys, i))
			took := time.Since(at).Nanoseconds()
			var seen version
			if err == nil && found {
				seen, err = versionOf(value, w.size)
			}
			mu.Lock()
			defer mu.Unlock()
			if answers == nil {
				return
			}
			answers[i] = callerAnswer{took, int64(seen)}
			if err != nil {
				answers[i].Version, problem = gotError, err.Error()
			}
			if left--; left == 0 {
				close(done)
			}
		}()
	}
	time.Sleep(time.Until(at))
	close(gate)
	timer := time.NewTimer(b.Patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
	mu.Lock()
	defer mu.Unlock()
	told := burstAnswer{Callers: answers, Error: problem, Trips: w.meter.trips.Load() - before}
	answers = nil
	return told, nil
}

// invalidate is a job: it tells the caches that the value of a key has changed.
type invalidate string

func (key invalidate) do(ctx context.Context, w *worker) (nothing, error) {
	return nothing{}, w.Invalidate(ctx, string(key))
}

// standLikeARequest gives the calling goroutine a stack as large as that of a server's request at
// its handler's first call: more than 4 KiB, so 8 KiB. A goroutine begins with 2 KiB. Without this
// function, the benchmark would measure how thousands of callers' stacks are copied when they begin
// to wait, instead of the waiting.
//
//go:noinline
func standLikeARequest() { occupy(new([5 << 10]byte)) }

// occupy is called with an array that lives on its caller's stack.
//
//go:noinline
func occupy(room *[5 << 10]byte) { room[0] = 1 }

// version is the origin's number for a value.
type version int64

const versionDigits = 19

// value returns the origin's value for a version, with the given size in bytes.
func (v version) value(size int) string {
	s := fmt.Sprintf("%0*d", versionDigits, int64(v))
	return s + strings.Repeat(".", max(size-len(s), 0))
}

// versionOf returns the version of a value, or an error if the value is wrong. With this check a
// protection can't win with quick wrong answers.
func versionOf(value string, size int) (version, error) {
	if len(value) != max(size, versionDigits) {
		return 0, fmt.Errorf("got a wrong value of %d bytes", len(value))
	}
	n, err := strconv.ParseInt(value[:versionDigits], 10, 64)
	return version(n), err
}
