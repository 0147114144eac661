package cacheguard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

const (
	// permitTTL is how long a process that dies keeps its permits from the others. A live one renews them at a third.
	permitTTL = 3 * time.Second

	// renewals is how many permits are renewed side by side: one after another they would not all be in time.
	renewals = 16

	// permitPause is the longest time to wait for a message that a permit was returned until it is looked at again.
	permitPause = 250 * time.Millisecond
)

// NewFleetLimiter returns a budget of max loads at a time for all processes that make one with this name on the same
// store; beside it at most queue loads wait in each process. max is the same everywhere, or the least of them may never
// get a turn. The permits are leases in the store: one of a process that died is free after 3 seconds; a process that
// is stopped for longer than that during a load may find that another one has begun meanwhile. While the store can't be used the
// budget holds for each process alone. It lives as long as the store.
func NewFleetLimiter(store Store, name string, max, queue int) (*Limiter, error) {
	var errs []error
	in, ok := store.(Permits)
	if isNil(store) {
		errs = append(errs, errNilStore)
	} else if !ok {
		errs = append(errs, fmt.Errorf("cacheguard: a store of type %T has no permits", store))
	}
	if name == "" || len(name) > maxName || strings.ContainsAny(name, "{}") {
		errs = append(errs, fmt.Errorf("cacheguard: %q can't be the name of a budget: it needs 1 to %d bytes without braces", name, maxName))
	}
	if max < 1 {
		errs = append(errs, fmt.Errorf("cacheguard: a budget of %d loads, it must be 1 at least", max))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	l := NewLimiter(max, queue)
	l.fleet = &permits{in: in, store: store, name: name, max: max, turn: make(chan struct{}, 1), returned: make(chan struct{}, 1)}
	store.Listen(PermitsCache, l.fleet.hear)
	return l, nil
}

// permits is this process' part of a fleet's budget.
type permits struct {
	in    Permits
	store Store
	name  string
	max   int

	turn     chan struct{} // who has put something in is the one who asks; the others wait behind
	returned chan struct{} // a permit was returned somewhere

	mu       sync.Mutex // guards what follows
	held     map[ID]struct{}
	renewing bool
	said     bool // that the store can't be used
	log      *slog.Logger
}

// logTo has it log where the first cache does that has this budget.
func (ps *permits) logTo(log *slog.Logger) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.log == nil {
		ps.log = log
	}
}

func (ps *permits) hear(m Message) {
	if m.Key != ps.name && m.Kind != MessageRestored {
		return
	}
	select {
	case ps.returned <- struct{}{}:
	default:
	}
}

// take takes a permit and returns what returns it. It waits no longer than ctx and patience; when urged is closed, or
// while the store can't be used, it does without.
func (ps *permits) take(ctx context.Context, patience time.Duration, urged <-chan struct{}) (back func(), err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	late := func() error { return fmt.Errorf("%w: no permit of budget %q in time", ErrOverloaded, ps.name) }
	select {
	case ps.turn <- struct{}{}:
	case <-urged:
		return func() {}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
		return nil, late()
	}
	defer func() { <-ps.turn }()
	token := newID()
	for {
		asked := time.Now()
		taken, wait, err := ps.in.TakePermit(context.WithoutCancel(ctx), ps.name, token, ps.max, permitTTL)
		ps.heard(err)
		switch {
		case taken && time.Since(asked) >= permitTTL: // this process stood still: it may be another's by now
			wait = 0
		case err != nil: // it may be taken all the same
			_ = ps.in.ReturnPermit(context.WithoutCancel(ctx), ps.name, token)
			return func() {}, nil
		case taken:
			ps.hold(token)
			return func() { ps.giveBack(token) }, nil
		}
		ps.store.Listening()
		pause := time.NewTimer(min(wait, permitPause)/2 + rand.N(permitPause/2))
		select {
		case <-ps.returned:
		case <-pause.C:
		case <-urged:
			pause.Stop()
			return func() {}, nil
		case <-ctx.Done():
			pause.Stop()
			return nil, context.Cause(ctx)
		case <-timer.C:
			pause.Stop()
			return nil, late()
		}
		pause.Stop()
	}
}

// heard keeps the log to one line for each beginning of trouble.
func (ps *permits) heard(err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if said := ps.said; said != (err != nil) {
		ps.said = !said
		if err != nil {
			ps.log.Warn("cacheguard: the fleet's budget can't be asked for; it holds for this process alone", "budget", ps.name, "error", err)
		} else {
			ps.log.Info("cacheguard: the fleet's budget holds again", "budget", ps.name)
		}
	}
}

func (ps *permits) hold(token ID) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.held == nil {
		ps.held = make(map[ID]struct{})
	}
	ps.held[token] = struct{}{}
	if !ps.renewing {
		ps.renewing = true
		time.AfterFunc(permitTTL/3, ps.renew)
	}
}

func (ps *permits) giveBack(token ID) {
	ps.mu.Lock()
	delete(ps.held, token)
	ps.mu.Unlock()
	_ = ps.in.ReturnPermit(context.Background(), ps.name, token) // if it fails, its time will be over
}

// renew prolongs what is held, and ends when that is nothing: most loads are over before their permit has to be.
func (ps *permits) renew() {
	ps.mu.Lock()
	tokens := make([]ID, 0, len(ps.held))
	for token := range ps.held {
		tokens = append(tokens, token)
	}
	ps.renewing = len(tokens) > 0
	ps.mu.Unlock()
	if len(tokens) == 0 {
		return
	}
	var all sync.WaitGroup
	side := make(chan struct{}, renewals)
	for _, token := range tokens {
		side <- struct{}{}
		all.Go(func() {
			defer func() { <-side }()
			_, _, _ = ps.in.TakePermit(context.Background(), ps.name, token, ps.max, permitTTL)
			ps.mu.Lock()
			_, still := ps.held[token]
			ps.mu.Unlock()
			if !still { // returned meanwhile, and perhaps taken again by this
				_ = ps.in.ReturnPermit(context.Background(), ps.name, token)
			}
		})
	}
	all.Wait()
	time.AfterFunc(permitTTL/3, ps.renew)
}
