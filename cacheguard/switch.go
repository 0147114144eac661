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

// Switch turns caches off and on while the program runs. It applies to all caches of this process
// that have it in their Options, including caches of package middleware. The zero Switch is on. A
// Switch is safe for concurrent use and must not be copied.
//
//	var products cacheguard.Switch // Options.Switch: &products
//
//	mode, err := cacheguard.ParseMode(flag) // whenever the flag of the program changes
//	if err == nil {
//		err = products.Set(mode)
//	}
//
// Each process has its own switches. While a switch is off, its process still sends its changes and
// receives the changes of other processes. So when the switch is on again, no call gets a value
// that is older than a change.
type Switch struct {
	mode atomic.Uint32

	mu     sync.Mutex // guards caches, and keeps the log lines of the caches in order
	caches []*attached
}

// attached is a cache that a [Switch] applies to.
type attached struct {
	name string
	log  *slog.Logger
}

// Mode is the state of a [Switch]. A mode applies to calls that begin while it is set. Calls that
// began before are not affected, unless they try again because a result was too old for them
// ([Options.StrongReads], [NotOlderThan]): a further try may follow the new mode.
type Mode uint8

const (
	// ModeOn is the normal mode: calls use the cache.
	ModeOn Mode = iota

	// ModeOff makes every Get, Refresh and their variants load, as if the store were empty and
	// there were no other processes. The cache reads neither the store nor the local tier, and
	// stores nothing. Simultaneous calls of this process still share one load, and MaxLoads or
	// Limiter still applies. The error of a load goes only to the callers that waited for it.
	// EntryFuncs see no previous value. Peek and Local find nothing. Set, Update, Invalidate and
	// all other changes work as in ModeOn; Update still takes the lease.
	ModeOff

	// ModeShadow compares the cache's answers with loaded values, but doesn't use the answers. A
	// load of this process answers every Get and its variants, as in ModeOff. In addition, the
	// cache is read and filled. If it has no fresh value, the load runs under the key's lease and
	// its result is stored, unless another load has the lease. If it has a fresh value, the value
	// is compared with the load's result (Options.Same), and observers get EventCompared. No more
	// than 1,024 values are compared at a time. A call takes as long as a miss: the load, and up to
	// three steps of the store, each within its operation timeout. GetMany calls its load up to
	// twice: once for the keys whose results are stored, and once for the other keys. Refresh and
	// changes work as in ModeOn.
	ModeShadow
)

var modeNames = [...]string{"on", "off", "shadow"}

// String returns "on", "off" or "shadow".
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// ParseMode returns the mode with the name "on", "off" or "shadow".
func ParseMode(text string) (Mode, error) {
	if i := slices.Index(modeNames[:], text); i >= 0 {
		return Mode(i), nil
	}
	return 0, fmt.Errorf("cacheguard: %.20q is no mode of a Switch: on, off or shadow", text)
}

// Mode returns the mode that was set last.
func (s *Switch) Mode() Mode { return Mode(s.mode.Load()) }

var (
	switchedLine = report.Line{Level: slog.LevelWarn, Text: "cacheguard: switched",
		See:   "the-switch",
		Means: "off: every call loads; shadow: every call loads, and the cache is only filled and compared"}
	switchedOnLine = report.Line{
		Level: slog.LevelInfo, Text: "cacheguard: switched on", See: "the-switch",
	}
)

// Set sets the mode for calls that begin from now on. If this changes the mode, each cache logs a
// line. For an unknown mode, Set returns an error and changes nothing.
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

// tell logs the mode, as a warning unless the cache is on.
func (c *attached) tell(m Mode) {
	if m == ModeOn {
		switchedOnLine.Log(context.Background(), c.log, "cache", c.name)
		return
	}
	switchedLine.Log(context.Background(), c.log, "cache", c.name, "mode", m.String())
}

// attach adds a cache to the switch. detach removes it. If the switch is not on when the cache is
// added, the cache logs the mode at once.
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

// groupIn returns the group of flights for a call of this group in this mode. While the cache is
// not on, the group is direct, except for refreshes in shadow. In the group direct, callers only
// get results of loads of this process. So after the switch was set, a call never joins an older
// flight that may have found a stored value.
func groupIn(m Mode, g group) group {
	if m == ModeOn || m == ModeShadow && g == refreshes {
		return g
	}
	return direct
}

// leadDirect is the path of the caller that leads a flight of the group direct: while the cache is
// off or in shadow, or for a load without the lease (see besideLease). If this caller has already
// found a value that is one of several (see several.go), had is this value. Otherwise had is nil.
//
//go:noinline
func (c *Cache[V]) leadDirect(
	ctx context.Context, of *target[V], had *found[V], res *Result[V],
) error {
	if c.opts.Switch.Mode() != ModeShadow {
		return c.detach(ctx, c.offPath(of), res)
	}
	got, err := c.lookAside(ctx, of, had)
	if had == nil && err == nil && got.res.Status != StatusMiss && !got.unshared &&
		desk.Parts(ctx, got.res.Value) {
		// The value tells other callers where their values are. No caller gets this value as its
		// answer.
		return c.leadSeveral(ctx, of, &got, res)
	}
	if got.passing && err == nil { // the other callers load for themselves, too
		of.flight.Land(outcome[V]{also: &aside[V]{unshared: true}})
	}
	return c.detach(ctx, c.inShadow(of, got, err), res)
}

// lookAside returns the value that a call would get if the cache were not in shadow. If had is not
// nil, it returns had.
func (c *Cache[V]) lookAside(ctx context.Context, of *target[V], had *found[V]) (found[V], error) {
	if had != nil {
		return *had, nil
	}
	if c.tier.values != nil {
		c.store.Listening() // makes the store listen, because without messages the tier is not used
	}
	if got, ok := c.tier.found(of.key.Key); ok {
		return got, nil
	}
	got, _, err := c.lookUp(ctx, of, false)
	return got, err
}

// offPath makes a miss that loads without a look-up in the store and without the lease.
func (c *Cache[V]) offPath(of *target[V]) *miss[V] {
	m := c.missOf(of, found[V]{}, nil)
	m.Apart = true
	return m
}

// inShadow makes a miss whose callers don't get the stored value. The load doesn't see the stored
// value either, because callers must only get values from the origin. After the hit-for-miss marker
// each caller loads for itself, so the miss has a flight of its own.
func (c *Cache[V]) inShadow(of *target[V], got found[V], storeErr error) *miss[V] {
	if storeErr != nil {
		return c.offPath(of)
	}
	if got.good == protocol.Fresh && !got.early {
		m := c.offPath(of)
		m.rehearsed = &got
		return m
	}
	passing := got.passing
	got.forget()
	m := c.missOf(of, got, nil)
	m.Own = true
	if passing {
		m.flight = flight.Solo[outcome[V]]()
	}
	return m
}
