package storetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

var togetherCases = []spec{
	{"together: one of fifty is granted", oneLoad, togetherLease},
	{"together: the last claim wins", noLateFill, togetherClaim},
	{"together: no old value survives an invalidation", noLateFill, togetherInvalidate},
}

// together calls do n times at once, with the stores in turn.
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
			answers[i], err = s.Lease(e.ctx, k, cacheguard.LeaseAsk{Token: tokens[i], TTL: long, Wait: true})
			return err
		})
		var granted []cacheguard.Grant
		for _, a := range answers {
			if a.State == cacheguard.LeaseGranted {
				granted = append(granted, a.Grant)
			}
		}
		if len(granted) != 1 {
			e.Fatalf("%d of %d who asked at once were granted the lease; want 1", len(granted), askers)
		}
		for _, a := range answers {
			if a.State != cacheguard.LeaseGranted && (a.State != cacheguard.LeaseHeld || a.Holder != granted[0].Token) {
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
	var fills [writers]cacheguard.FillAnswer
	e.together(writers, func(i int, s cacheguard.Store) (err error) {
		fills[i], err = s.Fill(e.ctx, k, grants[i], e.frame(grants[i].Token, "v"), long)
		return err
	})
	stored := 0
	for i, answer := range fills {
		if answer == cacheguard.FillStored {
			stored++
			e.value(k, e.frameOf(k, grants[i].Token))
		}
	}
	if stored != 1 {
		e.Errorf("the fills of %d out of %d claims were stored; want that of the last one", stored, writers)
	}
}

// frameOf is the key's value if that load made it.
func (e *env) frameOf(k cacheguard.Key, load cacheguard.ID) []byte {
	e.Helper()
	f := e.get(e.a, k)
	if string(id(f)) != string(load[:]) {
		e.Errorf("the value is %s; want that of load %v", brief(f), load)
	}
	return f
}

// togetherInvalidate has loads of an origin that changes, and checks that no value is older than the last change that
// was followed by an invalidation: as seen by the one who made the change, and by everybody in the end.
func togetherInvalidate(e *env) {
	const (
		changes = 40
		loaders = 6
	)
	k := e.key("k")
	var origin atomic.Uint64
	var over atomic.Bool
	load := func(s cacheguard.Store) error {
		f, err := s.Get(e.ctx, k)
		if err != nil {
			return err
		}
		answer, err := s.Lease(e.ctx, k, cacheguard.LeaseAsk{Token: e.token(), TTL: long, Seen: id(f)})
		if err != nil || answer.State != cacheguard.LeaseGranted {
			return err
		}
		body := binary.BigEndian.AppendUint64(nil, origin.Load())
		_, err = s.Fill(e.ctx, k, answer.Grant, e.frame(answer.Grant.Token, string(body)), long)
		return err
	}
	change := func(s cacheguard.Store) error {
		now := origin.Add(1)
		if err := s.Invalidate(e.ctx, []cacheguard.Key{k}); err != nil {
			return err
		}
		if err := e.notOlder(s, k, now); err != nil {
			return err
		}
		return load(s)
	}
	e.together(1+loaders, func(i int, s cacheguard.Store) (err error) {
		if i == 0 {
			defer over.Store(true)
			for n := 0; n < changes && err == nil; n++ {
				err = change(s)
			}
			return err
		}
		for !over.Load() && err == nil {
			err = load(s)
		}
		return err
	})
	if err := e.notOlder(e.b, k, origin.Load()); err != nil {
		e.Errorf("%v", err)
	}
}

// notOlder checks the value's version, if there is a value.
func (e *env) notOlder(s cacheguard.Store, k cacheguard.Key, version uint64) error {
	f, err := s.Get(e.ctx, k)
	if err != nil || f == nil {
		return err
	}
	_, body, err := frame.Parse(f)
	if err != nil {
		return err
	}
	if got := binary.BigEndian.Uint64(body); got < version {
		return fmt.Errorf("version %d was invalidated, and is the value after the invalidation of version %d", got, version)
	}
	return nil
}
