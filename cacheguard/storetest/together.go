package storetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

var togetherCases = []spec{
	{"together: one of fifty is granted", oneLoad, togetherLease},
	{"together: the last claim wins", noLateFill, togetherClaim},
	{"together: no old value survives an invalidation", noLateFill, togetherInvalidate},
	{
		"together: no generation that was read before is taken for the last", tagged,
		togetherGenerations,
	},
}

// together calls do n times at the same time, with the stores in turn.
func (e *env) together(n int, do func(i int, s cacheguard.Store) error) {
	e.Helper()
	var all sync.WaitGroup
	start := make(chan struct{})
	failed := make([]error, n)
	for i := range n {
		s := e.fleet.Stores[i%len(e.fleet.Stores)]
		all.Go(func() {
			<-start
			failed[i] = do(i, s)
		})
	}
	close(start)
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		e.Fatalf("%v", err)
	}
}

func togetherLease(e *env) {
	const askers = 50
	for round := range 5 {
		k := e.key(fmt.Sprint(round))
		var tokens [askers]cacheguard.ID
		for i := range tokens {
			tokens[i] = e.token()
		}
		var answers [askers]cacheguard.LeaseAnswer
		e.together(askers, func(i int, s cacheguard.Store) (err error) {
			answers[i], err = s.Lease(e.ctx, k,
				cacheguard.LeaseAsk{Token: tokens[i], TTL: long, Wait: true})
			return err
		})
		var granted []cacheguard.Grant
		for _, a := range answers {
			if a.State == cacheguard.LeaseGranted {
				granted = append(granted, a.Grant)
			}
		}
		if len(granted) != 1 {
			e.Fatalf("%d of %d who asked at once were granted the lease; want 1", len(granted),
				askers)
		}
		for _, a := range answers {
			if a.State != cacheguard.LeaseGranted &&
				(a.State != cacheguard.LeaseHeld || a.Holder != granted[0].Token) {
				e.Errorf("lease: %s; want it held by %v", describe(a), granted[0].Token)
			}
		}
		e.holds(k, granted[0])
	}
}

func togetherClaim(e *env) {
	const writers = 20
	k := e.key("k")
	var grants [writers]cacheguard.Grant
	e.together(writers, func(i int, s cacheguard.Store) (err error) {
		grants[i], err = s.Claim(e.ctx, k, e.token(), long)
		return err
	})
	last := -1
	for i, g := range grants {
		if e.renew(e.b, k, g, long) != cacheguard.HoldingMine {
			continue
		}
		if last >= 0 {
			e.Errorf("two of %d claims have the lease", writers)
		}
		last = i
	}
	if last < 0 {
		e.Fatalf("none of %d claims has the lease", writers)
	}
	var fills [writers]cacheguard.FillAnswer
	e.together(writers, func(i int, s cacheguard.Store) (err error) {
		if i != last {
			fills[i], err = s.Fill(e.ctx, k, grants[i], e.frame(grants[i].Token, "v"), long)
		}
		return err
	})
	fills[last] = e.fill(e.a, k, grants[last], e.frame(grants[last].Token, "v"))
	for i, answer := range fills {
		if (answer == cacheguard.FillStored) != (i == last) {
			e.Errorf("claim %d has the lease, the fill of claim %d was %s", last, i,
				filling(answer))
		}
	}
	if f := e.get(e.a, k); string(id(f)) != string(grants[last].Token[:]) {
		e.Errorf("the value is %s; want that of load %v", brief(f), grants[last].Token)
	}
}

// togetherInvalidate runs loads of an origin that changes. After an invalidation has returned, no
// process may read a value from before it.
func togetherInvalidate(e *env) {
	const (
		changes = 200
		loaders = 6
	)
	o := &origin{env: e, k: e.key("k")}
	e.together(1+loaders, func(i int, s cacheguard.Store) error {
		if i == 0 {
			defer o.over.Store(true)
			return o.change(s, changes)
		}
		for !o.over.Load() {
			if err := errors.Join(o.look(s), o.load(s, pace(i%3))); err != nil {
				return err
			}
			runtime.Gosched()
		}
		return nil
	})
	if err := o.look(e.b); err != nil {
		e.Errorf("%v", err)
	}
}

// togetherGenerations reads the generation of a tag in a process while the tag is invalidated. The
// process may keep any answer. But after the invalidation it must return the new generation.
func togetherGenerations(e *env) {
	for _, s := range []cacheguard.Store{e.a, e.b} {
		e.listening(s)
	}
	const askers = 6
	for round := range 100 {
		tags := []string{fmt.Sprint("tag ", round)}
		var invalidated int64
		e.together(1+askers, func(i int, _ cacheguard.Store) (err error) {
			if i == 0 {
				(*origin)(nil).yield()
				invalidated, err = e.a.InvalidateTags(e.ctx, e.cache, tags)
				return err
			}
			_, err = e.fleet.Stores[i/2%2].Generations(e.ctx, e.cache, tags)
			return err
		})
		if got := e.generations(e.a, tags...)[1]; got != invalidated {
			e.Fatalf("a process has invalidated a tag, generation %d, and says that it has generation %d",
				invalidated, got)
		}
		e.eventually("the other process knows the generation", func() bool {
			return e.generations(e.b, tags...)[1] == invalidated
		})
	}
}

// origin is the source that loads read. Its value is the number of its version.
type origin struct {
	*env
	k           cacheguard.Key
	version     atomic.Uint64
	invalidated atomic.Uint64 // versions below this one are invalid
	over        atomic.Bool
}

// change makes new versions.
func (o *origin) change(s cacheguard.Store, n int) error {
	for range n {
		o.yield()
		version := o.version.Add(1)
		o.yield()
		if err := s.Invalidate(o.ctx, []cacheguard.Key{o.k}); err != nil {
			return err
		}
		o.invalidated.Store(version)
		if err := o.look(s); err != nil {
			return err
		}
	}
	return nil
}

// pace is the time for which a load runs.
type pace int

const (
	quick            pace = iota
	untilChanged          // until the version that it has read is out of date
	untilInvalidated      // and until all processes were told of the change
)

func (o *origin) goesOn(p pace, version uint64) bool {
	switch p {
	case untilChanged:
		return o.version.Load() == version && !o.over.Load()
	case untilInvalidated:
		return o.invalidated.Load() <= version && !o.over.Load()
	}
	return false
}

// load runs a load in the same way as a cache.
func (o *origin) load(s cacheguard.Store, p pace) error {
	f, _, err := s.Get(o.ctx, o.k, nil)
	if err != nil {
		return err
	}
	answer, err := s.Lease(o.ctx, o.k,
		cacheguard.LeaseAsk{Token: o.token(), TTL: long, Seen: id(f)})
	if err != nil || answer.State != cacheguard.LeaseGranted {
		return err
	}
	version := o.version.Load()
	for o.goesOn(p, version) {
		runtime.Gosched()
	}
	o.yield()
	f = o.frame(answer.Grant.Token, string(binary.BigEndian.AppendUint64(nil, version)))
	_, err = s.Fill(o.ctx, o.k, answer.Grant, f, long)
	return err
}

// look checks that the value, if there is one, isn't older than an invalidation that has returned.
func (o *origin) look(s cacheguard.Store) error {
	oldest := o.invalidated.Load()
	f, _, err := s.Get(o.ctx, o.k, nil)
	if err != nil || f == nil {
		return err
	}
	_, body, err := frame.Parse(f)
	if err != nil || len(body) != 8 {
		return fmt.Errorf("the value is %s, which no load made: %w", brief(f), err)
	}
	if got := binary.BigEndian.Uint64(body); got < oldest {
		return fmt.Errorf("the value is version %d after the invalidation of all before version %d",
			got, oldest)
	}
	return nil
}

// yield sometimes lets other goroutines run.
func (*origin) yield() {
	for range rand.IntN(8) {
		runtime.Gosched()
	}
}
