package cacheguard

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/internal/desk"
	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/protocol"
	"github.com/cacheguard/cacheguard/internal/report"
)

// Switch takes caches out of the path of their calls while the program runs, and puts them back. It
// applies to all caches of this process, and of package middleware, that have it in their Options.
// The zero Switch is on. A Switch is safe for concurrent use and must not be copied.
//
//	var products cacheguard.Switch // Options.Switch: &products
//
//	mode, err := cacheguard.ParseMode(flag) // whenever the flag of the program changes
//	err = errors.Join(err, products.Set(mode))
//
// Other processes have switches of their own. While a switch is off, its process still sends its
// changes and hears those of others. So when it is on again, it serves nothing that is older than a
// change.
type Switch struct {
	mode atomic.Uint32

	mu     sync.Mutex // guards caches, and orders their lines
	caches []*attached
}

// attached is a cache that a switch is for.
type attached struct {
	name string
	log  *slog.Logger
}

// Mode is the state of a Switch. It applies to calls that begin in it; calls that began before are
// not affected.
type Mode uint8

const (
	// ModeOn does nothing to them.
	ModeOn Mode = iota

	// ModeOff has every Get, Refresh and their like load, as if the store were empty and nobody
	// else there. Neither it nor the local tier is asked, and nothing is stored. Loads of the calls
	// that come at the same time in this process are still one, and bounded by MaxLoads or Limiter;
	// an error is for those who have waited for it. EntryFuncs see no previous value. Peek and
	// Local find nothing. Set, Update, Invalidate and all other changes are done as ever, which for
	// Update includes the lease.
	ModeOff

	// ModeShadow shows what a cache would do without trusting it. Every Get and its like is
	// answered by a load of this process, as by ModeOff. Beside it, the cache is read and filled:
	// where it has nothing fresh, that load runs under the key's lease, if nobody else has it, and
	// its result is stored. Where it has a fresh value, the load's result is compared with that
	// (Options.Same), which observers are told of by EventCompared, unless more than 1,024 are
	// being compared. A call takes as long as a miss does: the load, and up to three steps of the
	// store, each within its operation timeout. GetMany calls its load up to twice, for what is
	// stored and for what isn't. Refresh and changes are done as ever.
	ModeShadow
)

var modeNames = [...]string{"on", "off", "shadow"}

// String is "on", "off" or "shadow".
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// ParseMode makes a mode of "on", "off" or "shadow".
func ParseMode(text string) (Mode, error) {
	if i := slices.Index(modeNames[:], text); i >= 0 {
		return Mode(i), nil
	}
	return 0, fmt.Errorf("cacheguard: %.20q is no mode of a Switch: on, off or shadow", text)
}

// Mode is what the switch has been set to last.
func (s *Switch) Mode() Mode { return Mode(s.mode.Load()) }

var (
	switchedLine = report.Line{Level: slog.LevelWarn, Text: "cacheguard: switched", See: "the-switch",
		Means: "off: every call loads; shadow: every call loads, and the cache is read, filled and compared beside it"}
	switchedOnLine = report.Line{Level: slog.LevelInfo, Text: "cacheguard: switched on", See: "the-switch"}
)

// Set changes the mode for calls that begin from now on. If the mode was another one, each cache logs
// a line. An unknown mode is an error and changes nothing.
func (s *Switch) Set(m Mode) error {
	if int(m) >= len(modeNames) {
		return fmt.Errorf("cacheguard: %d is no mode of a Switch", m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if Mode(s.mode.Swap(uint32(m))) == m {
		return nil
	}
	for _, c := range s.caches {
		c.tell(m)
	}
	return nil
}

func (c *attached) tell(m Mode) {
	if m == ModeOn {
		switchedOnLine.Log(context.Background(), c.log, "cache", c.name)
		return
	}
	switchedLine.Log(context.Background(), c.log, "cache", c.name, "mode", m.String())
}

// attach makes a cache known to its switch, until detach is called.
func (s *Switch) attach(name string, log *slog.Logger) (detach func()) {
	c := &attached{name, log}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caches = append(s.caches, c)
	if m := s.Mode(); m != ModeOn {
		c.tell(m)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.caches = slices.DeleteFunc(s.caches, func(other *attached) bool { return other == c })
	}
}

// groupIn is the group of flights that a call of this group takes part in: while the cache is not
// on, the one whose flights land with loads of this process only. So nobody who comes after the
// switch was set gets what another one has found before.
func (c *Cache[V]) groupIn(m Mode, g group) group {
	if m == ModeOn || m == ModeShadow && g == refreshes {
		return g
	}
	return direct
}

// leadDirect is the way of the caller that leads a flight while the cache is off, or in shadow. had
// is what this caller has found there, one of several; or nil.
//
//go:noinline
func (c *Cache[V]) leadDirect(ctx context.Context, of *target[V], had *found[V], res *Result[V]) error {
	if c.opts.Switch.Mode() != ModeShadow {
		return c.detach(ctx, c.offPath(of), res)
	}
	got, err := c.lookAside(ctx, of, had)
	if had == nil && err == nil && got.res.Status != StatusMiss && !got.unshared && desk.Parts(ctx, got.res.Value) {
		// It says where others find theirs, which they are not answered with.
		several := got
		of.flight.Land(outcome[V]{res: got.res, also: &aside[V]{several: &several}})
		return c.ofSeveral(ctx, of.name, of.load, &several, res)
	}
	m := c.inShadow(of, got, err)
	if got.passing && err == nil { // the others don't wait for who gets the lease
		of.flight.Land(outcome[V]{also: &aside[V]{unshared: true}})
		m.flight = flight.Solo[outcome[V]]()
	}
	return c.detach(ctx, m, res)
}

// lookAside finds what a call would be answered with, were the cache not in shadow, unless that is
// known.
func (c *Cache[V]) lookAside(ctx context.Context, of *target[V], had *found[V]) (found[V], error) {
	if had != nil {
		return *had, nil
	}
	if c.tier.values != nil {
		c.store.Listening() // without messages the tier is of no use
	}
	if got, ok := c.tier.found(of.key.Key); ok {
		return got, nil
	}
	got, _, err := c.lookUp(ctx, of, false)
	return got, err
}

// offPath makes a miss that loads without looking at anything.
func (c *Cache[V]) offPath(of *target[V]) *miss[V] {
	m := c.missOf(of, found[V]{}, nil)
	m.Apart = true
	return m
}

// inShadow makes a miss that takes nothing of what is there, and doesn't show it to the load
// either.
func (c *Cache[V]) inShadow(of *target[V], got found[V], storeErr error) *miss[V] {
	if storeErr != nil {
		return c.offPath(of)
	}
	if got.good == protocol.Fresh && !got.early {
		m := c.offPath(of)
		m.rehearsed = &got
		return m
	}
	got.forget()
	m := c.missOf(of, got, nil)
	m.Own = true
	return m
}
