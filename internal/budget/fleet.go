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
	// permitTTL is how long the permits of a process that has died stay taken. A live process
	// renews its permits after a third of this time.
	permitTTL = 3 * time.Second

	// renewals is the number of permits that are renewed at the same time. If they were renewed one
	// after another, some might be renewed too late.
	renewals = 16

	// permitPause is the longest wait for a message that a permit was returned. After it, the
	// process asks for a permit again.
	permitPause = 250 * time.Millisecond
)

// Permits are the permits of a fleet's budget in a store.
type Permits interface {
	// Take gives the token a permit for ttl, or renews its permit, and reports whether the token
	// has a permit. If not, wait is the time after which the first permit ends by itself.
	Take(ctx context.Context, token ID,
		ttl time.Duration) (taken bool, wait time.Duration, err error)

	// Return returns the token's permit.
	Return(ctx context.Context, token ID) error

	// Listening subscribes to messages about returned permits, and reports whether messages arrive.
	Listening() bool
}

// ID is a random token.
type ID = [16]byte

// Fleet is this process' part of a fleet's budget. It is safe for concurrent use.
type Fleet struct {
	in   Permits
	name string

	turn     chan struct{} // holds an element while one goroutine asks; the other goroutines wait
	returned chan struct{} // has an element if a process has returned a permit

	mu       sync.Mutex // guards the fields below
	held     map[ID]struct{}
	renewing bool
	log      *slog.Logger

	spell report.Spell // the problem that the store can't be used
}

// NewFleet returns this process' part of a budget. It has no permits yet.
func NewFleet(name string, in Permits) *Fleet {
	return &Fleet{
		in: in, name: name, turn: make(chan struct{}, 1), returned: make(chan struct{}, 1),
	}
}

// LogTo sets the logger, which is the logger of the first cache that uses this budget.
func (f *Fleet) LogTo(log *slog.Logger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.log == nil {
		f.log = log
	}
}

// Returned reports that a permit may have been returned. It doesn't block.
func (f *Fleet) Returned() {
	select {
	case f.returned <- struct{}{}:
	default:
	}
}

// Take takes a permit, and returns a function that returns it. It waits no longer than ctx and
// patience allow. If urged is closed, or while the store can't be used, it succeeds without a
// permit.
func (f *Fleet) Take(
	ctx context.Context, patience time.Duration, urged <-chan struct{},
) (back func(), err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	late := func() error {
		return fmt.Errorf("%w: no permit of budget %q in time", ErrOverloaded, f.name)
	}
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
		case taken && time.Since(asked) >= permitTTL:
			// This process stood still for longer than permitTTL, so another process may have the
			// permit by now.
			wait = 0
		case err != nil: // the permit may have been taken despite the error
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
	budgetLine = report.Line{Level: slog.LevelWarn,
		Text: "cacheguard: the fleet's budget can't be asked for", See: "the-store-cant-be-used",
		Means: "each process has the whole budget for itself"}
	budgetAgainLine = report.Line{
		Level: slog.LevelInfo, Text: "cacheguard: the fleet's budget holds again",
		See: "the-store-cant-be-used",
	}
)

// heard logs the result of a request for a permit.
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
	_ = f.in.Return(context.Background(), token) // if this fails, the permit ends by itself
}

// renew renews the permits that this process holds, and ends when it holds none. Most loads end
// before their permit must be renewed.
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
			// The permit was returned meanwhile, and this renewal may have taken it again.
			if !still {
				_ = f.in.Return(context.Background(), token)
			}
		})
	}
	all.Wait()
	time.AfterFunc(permitTTL/3, f.renew)
}
