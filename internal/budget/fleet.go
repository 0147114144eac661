package budget

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/internal/report"
)

const (
	// permitTTL is how long a process that dies keeps its permits from the others. A live one
	// renews them at a third.
	permitTTL = 3 * time.Second

	// renewals is how many permits are renewed side by side: one after another they would not all
	// be in time.
	renewals = 16

	// permitPause is the longest time to wait for a message that a permit was returned until it is
	// looked at again.
	permitPause = 250 * time.Millisecond
)

// Permits are what a fleet's budget is made of: leases in a store.
type Permits interface {
	// Take makes the token a holder for ttl, or renews it if it is one, and reports whether it is.
	// If not, wait is when the first permit ends by itself.
	Take(ctx context.Context, token ID, ttl time.Duration) (taken bool, wait time.Duration, err error)

	// Return ends the token's permit.
	Return(ctx context.Context, token ID) error

	// Listening sees to it that the Fleet is told when a permit is returned.
	Listening() bool
}

// ID is a token, drawn at random.
type ID = [16]byte

// Fleet is this process' part of a fleet's budget. It is safe for concurrent use.
type Fleet struct {
	in   Permits
	name string

	turn     chan struct{} // who has put something in is the one who asks; the others wait behind
	returned chan struct{} // a permit was returned somewhere

	mu       sync.Mutex // guards what follows
	held     map[ID]struct{}
	renewing bool
	log      *slog.Logger

	spell report.Spell // the store can't be used
}

// NewFleet returns the part of a process that has done nothing yet.
func NewFleet(name string, in Permits) *Fleet {
	return &Fleet{in: in, name: name, turn: make(chan struct{}, 1), returned: make(chan struct{}, 1)}
}

// LogTo has it log where the first cache does that has this budget.
func (f *Fleet) LogTo(log *slog.Logger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.log == nil {
		f.log = log
	}
}

// Returned tells it that somebody may have returned a permit. It doesn't block.
func (f *Fleet) Returned() {
	select {
	case f.returned <- struct{}{}:
	default:
	}
}

// Take takes a permit and returns what returns it. It waits no longer than ctx and patience; when
// urged is closed, or while the store can't be used, it does without.
func (f *Fleet) Take(ctx context.Context, patience time.Duration, urged <-chan struct{}) (back func(), err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	late := func() error { return fmt.Errorf("%w: no permit of budget %q in time", ErrOverloaded, f.name) }
	select {
	case f.turn <- struct{}{}:
	case <-urged:
		return func() {}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
		return nil, late()
	}
	defer func() { <-f.turn }()
	var token ID
	_, _ = rand.Read(token[:]) // never fails
	for {
		asked := time.Now()
		taken, wait, err := f.in.Take(context.WithoutCancel(ctx), token, permitTTL)
		f.heard(err)
		switch {
		case taken && time.Since(asked) >= permitTTL: // this process stood still: it may be another's by now
			wait = 0
		case err != nil: // it may be taken all the same
			_ = f.in.Return(context.WithoutCancel(ctx), token)
			return func() {}, nil
		case taken:
			f.hold(token)
			return func() { f.giveBack(token) }, nil
		}
		f.in.Listening()
		pause := time.NewTimer(min(wait, permitPause)/2 + mathrand.N(permitPause/2))
		select {
		case <-f.returned:
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

var (
	budgetLine = report.Line{Level: slog.LevelWarn, Text: "cacheguard: the fleet's budget can't be asked for", See: "the-store-cant-be-used",
		Means: "each process has the whole budget for itself"}
	budgetAgainLine = report.Line{Level: slog.LevelInfo, Text: "cacheguard: the fleet's budget holds again", See: "the-store-cant-be-used"}
)

// heard has the log say what came of asking for a permit.
func (f *Fleet) heard(err error) {
	f.mu.Lock()
	log := f.log
	f.mu.Unlock()
	if err != nil {
		f.spell.Begin(context.Background(), budgetLine, log, "budget", f.name, "error", err)
	} else {
		f.spell.End(context.Background(), budgetAgainLine, log, "budget", f.name)
	}
}

func (f *Fleet) hold(token ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == nil {
		f.held = make(map[ID]struct{})
	}
	f.held[token] = struct{}{}
	if !f.renewing {
		f.renewing = true
		time.AfterFunc(permitTTL/3, f.renew)
	}
}

func (f *Fleet) giveBack(token ID) {
	f.mu.Lock()
	delete(f.held, token)
	f.mu.Unlock()
	_ = f.in.Return(context.Background(), token) // if it fails, its time will be over
}

// renew prolongs what is held, and ends when that is nothing: most loads are over before their
// permit has to be.
func (f *Fleet) renew() {
	f.mu.Lock()
	tokens := make([]ID, 0, len(f.held))
	for token := range f.held {
		tokens = append(tokens, token)
	}
	f.renewing = len(tokens) > 0
	f.mu.Unlock()
	if len(tokens) == 0 {
		return
	}
	var all sync.WaitGroup
	side := make(chan struct{}, renewals)
	for _, token := range tokens {
		side <- struct{}{}
		all.Go(func() {
			defer func() { <-side }()
			_, _, _ = f.in.Take(context.Background(), token, permitTTL)
			f.mu.Lock()
			_, still := f.held[token]
			f.mu.Unlock()
			if !still { // returned meanwhile, and perhaps taken again by this
				_ = f.in.Return(context.Background(), token)
			}
		})
	}
	all.Wait()
	time.AfterFunc(permitTTL/3, f.renew)
}
