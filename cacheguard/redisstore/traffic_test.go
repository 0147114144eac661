package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

const (
	// Keys that never change, and whose values outlast the test.
	quietKeys    = 200
	changingKeys = 100                     // keys that change and are invalidated from time to time
	keptFor      = 2 * time.Second         // the hard TTL of changing keys
	originTakes  = 3 * time.Millisecond    // the time of a load
	callEach     = 20 * time.Millisecond   // the interval of a caller
	changeEach   = 25 * time.Millisecond   // the interval of changes in a replica
	leasedFor    = 6 * time.Second         // without messages a waiter would wait for this time
	callLimit    = 5 * lossTime            // the deadline of a call
	callers      = 12                      // callers in each replica
	slack        = 1500 * time.Millisecond // the time that a busy machine adds to a bound
)

// traffic is a fleet under load. Callers of every replica read a few hundred keys, while some of
// the keys change at the origin and are invalidated. traffic judges each answer as it comes.
type traffic struct {
	t     *testing.T
	fleet []*replica
	seen  []*grants // by replica
	from  time.Time

	stop context.CancelFunc
	gone sync.WaitGroup
	hot  atomic.Pointer[[]string] // keys that are asked for more often than the others

	calls, degraded, loads, changes, unsure atomic.Int64
	longest                                 atomic.Int64

	mu      sync.Mutex // guards the fields below
	lossy   []window   // when an acknowledged invalidation may be lost
	keys    map[string]*record
	running map[string]int // the running loads by replica and key
	most    int            // the largest number of loads of a key at a time
	lost    map[string]bool
	oldest  time.Duration // the longest time an invalidated value was still seen
	wrong   []string
}

// record is the origin's knowledge of a key, and the bounds for the fleet's answers.
type record struct {
	version int       // the version at the origin
	acked   int       // the version of the last acknowledged invalidation
	at      time.Time // when it was acknowledged
	by      int       // the replica that made the invalidation
	loads   int
}

type window struct{ from, to time.Time }

// grants counts the leases that a replica got, by key.
type grants struct {
	*tally
	mu  sync.Mutex // guards by
	key map[string]int
}

func (g *grants) Observe(ctx context.Context, e cacheguard.Event) {
	g.tally.Observe(ctx, e)
	if e.Kind == cacheguard.EventLeaseGranted {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.key[e.Key]++
	}
}

// newTraffic makes a fleet of three replicas, changes the options of each with change, and begins
// its load. The load keeps the machine busy, which must not look like a Redis that is down. So
// OpTimeout is long, except in a soak test.
func newTraffic(t *testing.T, change ...func(*site)) *traffic {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	tr := &traffic{
		t: t, stop: stop, from: time.Now(),
		keys: map[string]*record{}, running: map[string]int{}, lost: map[string]bool{},
	}
	prefix := newPrefix()
	for range 3 {
		var g *grants
		tr.fleet = append(tr.fleet, newReplica(t, "", prefix, append([]func(*site){func(s *site) {
			s.store.OpTimeout, s.cache.LeaseTTL = lossTime, leasedFor
			if redistest.Soak() {
				s.store.OpTimeout = 0
			}
			g = &grants{tally: s.cache.Observer.(*tally), key: map[string]int{}}
			s.cache.Observer = g
		}}, change...)...))
		tr.seen = append(tr.seen, g)
	}
	for _, r := range tr.fleet {
		r.listens(t)
	}
	for i := range tr.fleet {
		for range callers {
			tr.gone.Go(func() { tr.call(ctx, i) })
		}
		tr.gone.Go(func() { tr.change(ctx, i) })
	}
	t.Cleanup(func() {
		stop()
		tr.gone.Wait()
	})
	return tr
}

// call is one caller of a replica.
func (tr *traffic) call(ctx context.Context, i int) {
	tick := time.NewTicker(callEach)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		tr.one(i, tr.pick())
	}
}

// pick chooses a key. The first half of the quiet keys is known from the beginning, the others are
// added one by one.
func (tr *traffic) pick() string {
	if hot := tr.hot.Load(); hot != nil && rand.N(4) == 0 {
		return (*hot)[rand.N(len(*hot))]
	}
	if rand.N(3) == 0 {
		return fmt.Sprintf("changing-%d", rand.N(changingKeys))
	}
	known := min(quietKeys, quietKeys/2+int(time.Since(tr.from)/(50*time.Millisecond)))
	return fmt.Sprintf("quiet-%d", rand.N(known))
}

// one makes one call and judges its answer.
func (tr *traffic) one(i int, key string) {
	tr.mu.Lock()
	before := *tr.record(key)
	tr.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	began := time.Now()
	res, err := tr.fleet[i].cache.GetEntry(ctx, key, func(
		ctx context.Context, _ cacheguard.Result[string],
	) (cacheguard.Entry[string], error) {
		return tr.load(ctx, i, key)
	})
	ended := time.Now()
	tr.calls.Add(1)
	if res.Degraded {
		tr.degraded.Add(1)
	}
	for took := int64(ended.Sub(began)); ; {
		most := tr.longest.Load()
		if took <= most || tr.longest.CompareAndSwap(most, took) {
			break
		}
	}

	tr.mu.Lock()
	defer tr.mu.Unlock()
	name, number, _ := strings.Cut(res.Value, "@")
	version, notNumber := strconv.Atoi(number)
	switch {
	case err != nil:
		tr.accuse("%s gave %v after %v", key, err, ended.Sub(began))
	case name != key || notNumber != nil || version > tr.record(key).version:
		tr.accuse("%s gave %q; the origin has version %d", key, res.Value, tr.record(key).version)
	case version < before.acked:
		age := ended.Sub(before.at)
		switch {
		case tr.mayBeLost(before.at) && age <= keptFor+slack:
			tr.lost[fmt.Sprint(key, "@", before.acked)] = true
			tr.oldest = max(tr.oldest, age)
		case i != before.by && began.Sub(before.at) < slack:
			// The call joined an older call, because the message hadn't arrived.
		default:
			tr.accuse("%s gave version %d in replica %d, status %v, %v after version %d was invalidated by replica %d",
				key, version, i, res.Status, age, before.acked, before.by)
		}
	}
}

// accuse records a wrong answer. The caller holds mu.
func (tr *traffic) accuse(format string, args ...any) {
	tr.wrong = append(tr.wrong,
		fmt.Sprintf("%v: ", time.Since(tr.from).Round(time.Millisecond))+
			fmt.Sprintf(format, args...))
}

// mayBeLost reports whether an invalidation that was acknowledged then may be lost. The caller
// holds mu.
func (tr *traffic) mayBeLost(acked time.Time) bool {
	for _, w := range tr.lossy {
		if !acked.Before(w.from) && (w.to.IsZero() || !acked.After(w.to)) {
			return true
		}
	}
	return false
}

// record returns the record of a key. The caller holds mu.
func (tr *traffic) record(key string) *record {
	r := tr.keys[key]
	if r == nil {
		r = &record{}
		tr.keys[key] = r
	}
	return r
}

// load is the load of a replica: the origin's answer.
func (tr *traffic) load(ctx context.Context, i int, key string) (cacheguard.Entry[string], error) {
	where := fmt.Sprint(i, key)
	tr.loads.Add(1)
	tr.mu.Lock()
	r := tr.record(key)
	r.loads++
	e := cacheguard.Entry[string]{Value: fmt.Sprintf("%s@%d", key, r.version)}
	tr.running[where]++
	if strings.HasPrefix(key, "quiet") {
		tr.most = max(tr.most, tr.running[where])
	} else {
		e.TTL = keptFor
	}
	tr.mu.Unlock()
	defer func() {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.running[where]--
	}()
	timer := time.NewTimer(originTakes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return e, nil
	case <-ctx.Done():
		return e, ctx.Err()
	}
}

// change changes keys at the origin and invalidates them in one replica, again and again.
func (tr *traffic) change(ctx context.Context, i int) {
	tick := time.NewTicker(changeEach)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		keys := []string{fmt.Sprintf("changing-%d", rand.N(changingKeys))}
		if hot := tr.pick(); strings.HasPrefix(hot, "changing") {
			keys[0] = hot
		}
		if rand.N(4) == 0 { // several keys at a time use other commands
			keys = append(keys, fmt.Sprintf("changing-%d", rand.N(changingKeys)),
				fmt.Sprintf("changing-%d", rand.N(changingKeys)))
		}
		versions := make([]int, len(keys))
		tr.mu.Lock()
		for n, key := range keys {
			tr.record(key).version++
			versions[n] = tr.record(key).version
		}
		tr.mu.Unlock()
		err := tr.fleet[i].cache.Invalidate(context.Background(), keys...)
		failed, _ := err.(cacheguard.KeyErrors)
		tr.mu.Lock()
		for n, key := range keys {
			tr.changes.Add(1)
			if failed[key] != nil {
				tr.unsure.Add(1)
			} else if r := tr.record(key); versions[n] > r.acked {
				r.acked, r.at, r.by = versions[n], time.Now(), i
			}
		}
		tr.mu.Unlock()
	}
}

// runs lets the traffic go on for a while.
func (tr *traffic) runs(d time.Duration) {
	tr.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// mayLose begins a time in which the server that acknowledged an invalidation may lose it. The time
// begins a little earlier, because replicas get the data a moment later.
func (tr *traffic) mayLose() (end func()) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	i := len(tr.lossy)
	tr.lossy = append(tr.lossy, window{from: time.Now().Add(-time.Second)})
	return func() {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.lossy[i].to = time.Now()
	}
}

// usable returns the time from the given moment until every replica could use the store again for a
// key.
func (tr *traffic) usable(key string, since time.Time) time.Duration {
	tr.t.Helper()
	for _, r := range tr.fleet {
		waittest.Until(tr.t, "the store is used again", func() bool {
			_, err := r.cache.Peek(tr.t.Context(), key)
			return err == nil
		})

	}
	return time.Since(since)
}

// serves checks that the fleet works without help: a new key is loaded once, and waiting processes
// are woken by message.
func (tr *traffic) serves() {
	tr.t.Helper()
	for i, waiter := range tr.fleet {
		leader := tr.fleet[(i+1)%len(tr.fleet)]
		if woken := serveInTheEnd(tr.t, leader, waiter, newPrefix); woken > soon {
			tr.t.Errorf(
				"a waiter had the result of a load after %v: not by message, but at the end of the lease",
				woken)
		}
	}
}

// mark has the values of the counters at one moment.
type mark struct{ calls, degraded, loads, changes, unsure int64 }

func (tr *traffic) mark() mark {
	tr.longest.Store(0)
	return mark{
		tr.calls.Load(), tr.degraded.Load(), tr.loads.Load(), tr.changes.Load(), tr.unsure.Load(),
	}
}

// report logs the counts since a mark, and how long the servers, and then the fleet, needed to
// recover.
func (tr *traffic) report(fault string, since mark, servers, fleet time.Duration) {
	tr.t.Helper()
	longest := time.Duration(tr.longest.Load())
	n := tr.mark()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.t.Logf("%s: servers ready after %v, used after %v; %d calls of %d callers, longest %v, %d without the store; "+
		"%d loads; %d invalidations, %d reported as failed; so far %d acknowledged and lost, seen for up to %v, %d answers wrong",
		fault, servers.Round(time.Millisecond), fleet.Round(time.Millisecond),
		n.calls-since.calls, callers*len(tr.fleet), longest.Round(time.Millisecond),
		n.degraded-since.degraded,
		n.loads-since.loads, n.changes-since.changes, n.unsure-since.unsure,
		len(tr.lost), tr.oldest.Round(time.Millisecond), len(tr.wrong))
}

// end ends the traffic and checks the results. leases is the largest number of leases that a key
// that never changes may have got.
func (tr *traffic) end(leases int) {
	tr.t.Helper()
	tr.stop()
	tr.gone.Wait()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for i, w := range tr.wrong {
		if i == 10 {
			tr.t.Errorf("and %d more", len(tr.wrong)-i)
			break
		}
		tr.t.Error(w)
	}
	if tr.most > 2 { // a load whose lease was lost, and the load of later callers
		tr.t.Errorf("%d loads of one key ran at a time in one replica; want at most 2", tr.most)
	}
	twice := 0
	for key := range tr.keys {
		if !strings.HasPrefix(key, "quiet") {
			continue
		}
		granted := 0
		for _, g := range tr.seen {
			g.mu.Lock()
			granted += g.key[key]
			g.mu.Unlock()
		}
		if granted > 1 {
			twice++
		}
		if granted > leases {
			tr.t.Errorf("the lease of %s was granted %d times; want %d at most", key, granted,
				leases)
		}
	}
	tr.t.Logf("%d of %d keys that never change were granted more than one lease", twice, quietKeys)
}
