package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redislink"
	"github.com/cacheguard/cacheguard/internal/report"
)

const (
	// The breaker opens when this many steps in a row have failed.
	tolerance = 3

	// The average pause before the first probe is firstProbe. The pause doubles after each probe,
	// up to mostProbe.
	firstProbe = 50 * time.Millisecond
	mostProbe  = time.Second / 2

	// slotsTogether is how many neighbouring slots of a cluster share a breaker. A node has ranges
	// of slots, so a node that is down opens its own breakers and few others.
	slotsTogether = 256
)

// The errors of steps that are not sent.
var (
	errOpen = errors.New(
		"redisstore: not asked, because Redis has not answered and hasn't been reached since")
	errNoWrite = errors.New("redisstore: not asked, because Redis takes no writes at present")
)

var (
	silentLine = report.Line{Level: slog.LevelWarn,
		Text:  "redisstore: Redis doesn't answer; it is not asked until it does",
		See:   "redis-doesnt-answer",
		Means: "no hits; each process loads for itself, nothing is stored, and only changes wait for Redis"}
	crowdedLine = report.Line{Level: slog.LevelWarn,
		Text:  "redisstore: Redis takes no more connections; it is not asked until it does",
		See:   "redis-doesnt-answer",
		Means: "no hits; each process loads for itself, nothing is stored, and only changes wait for Redis"}
	answersLine = report.Line{
		Level: slog.LevelInfo, Text: "redisstore: Redis answers again", See: "redis-doesnt-answer",
	}
	noWritesLine = report.Line{Level: slog.LevelWarn,
		Text:  "redisstore: Redis takes no writes; no leases are asked for until it does",
		See:   "redis-doesnt-answer",
		Means: "hits are served; each process loads missing values for itself, and nothing is stored"}
	writesLine = report.Line{
		Level: slog.LevelInfo, Text: "redisstore: Redis takes writes again",
		See: "redis-doesnt-answer",
	}
)

// breakers save callers from waiting OpTimeout each for a Redis that doesn't answer. A store has
// two sets of breakers: for all steps, and for the steps that write. In each set a single server
// has one breaker, and a cluster has one for every 256 slots. Steps that write need their own
// breakers: if a node has become a replica, it still answers reads, but the client tries to write
// until the step's time is over.
type breakers struct {
	s      *Store
	all    []breaker
	probe  func(ctx context.Context, rdb redis.UniversalClient, name string) error
	writes bool  // these breakers are for steps that write
	errs   error // error of a step that is not sent

	opens, closes report.Line

	open atomic.Int32 // changed under mu; read without it, also by handlers of the log

	mu      sync.Mutex // guards the fields below
	spell   report.Spell
	ended   bool
	end     chan struct{} // closed by Close
	probing sync.WaitGroup
}

// breaker is closed while steps get answers. It opens after tolerance failures in a row. While a
// breaker for all steps is open, all of them fail at once, except changes and what is read after
// messages have begun to arrive: the clock and last generations. A breaker for writes stops only
// steps that need to write. A goroutine probes Redis from time to time, so that no caller has to
// wait for a probe. Changes are sent even while the breaker is open. The first answer to a probe, a
// change or another step that was sent after the breaker opened closes it; answered decides what
// counts as an answer.
type breaker struct {
	all    *breakers
	failed atomic.Int32 // failures in a row
	open   atomic.Bool
	why    atomic.Pointer[redislink.Trouble] // error of a step that is not sent
	// When the breaker was last opened, by clock.elapsed.
	since atomic.Int64
	// When the breaker was last closed, by clock.elapsed; 0: never.
	until atomic.Int64

	closing chan struct{} // closed to end the probe; guarded by all.mu
}

// initHealth makes the breakers for all steps. Their probe is a script, like nearly every step; it
// reads the clock.
func (bs *breakers) initHealth(s *Store, cluster bool) {
	bs.errs, bs.opens, bs.closes = errOpen, silentLine, answersLine
	bs.probe = func(ctx context.Context, rdb redis.UniversalClient, name string) error {
		return clockScript.Run(ctx, rdb, []string{name}).Err()
	}
	bs.init(s, cluster)
}

// initWrites makes the breakers for the steps that write.
func (bs *breakers) initWrites(s *Store, cluster bool) {
	bs.errs, bs.opens, bs.closes = errNoWrite, noWritesLine, writesLine
	bs.writes = true
	bs.probe = func(ctx context.Context, rdb redis.UniversalClient, name string) error {
		return probeScript.Run(ctx, rdb, []string{name + ":probe"}).Err()
	}
	bs.init(s, cluster)
}

func (bs *breakers) init(s *Store, cluster bool) {
	bs.s, bs.end = s, make(chan struct{})
	n := 1
	if cluster {
		n = slots / slotsTogether
	}
	bs.all = make([]breaker, n)
	for i := range bs.all {
		bs.all[i].all = bs
	}
}

// count returns how many breakers are open, and how many there are.
func (bs *breakers) count() (open, all int) {
	return int(bs.open.Load()), len(bs.all)
}

// of returns the breaker for a name.
func (bs *breakers) of(name string) *breaker {
	if len(bs.all) == 1 {
		return &bs.all[0]
	}
	return &bs.all[slotOf(name)/slotsTogether]
}

// troubled reports whether the breaker has recorded a failure that a success would clear.
func (b *breaker) troubled() bool { return b.failed.Load() != 0 || b.open.Load() }

// answered records the result of a step for a name. A quick error of Redis itself counts as an
// answer, because it costs callers no time. If Redis refuses the client or its user, even a slow
// error counts as an answer. But neither error shows that Redis accepts writes.
func (b *breaker) answered(name string, err error, took time.Duration) {
	if err != nil && redislink.IsPanic(err) {
		return
	}
	soon := err != nil && !redislink.NoAnswer(err) && took < b.all.s.opts.OpTimeout/4
	said := soon || err != nil && redislink.TurnsAway(b.all.s.explained(err))
	if said && b.all.writes {
		return
	}
	if err == nil || said {
		if b.failed.Load() != 0 { // checked first, so that not every step writes to shared memory
			b.failed.Store(0)
		}
		// A step that was sent before the breaker opened doesn't close it.
		if b.open.Load() && b.all.s.clock.elapsed()-took > time.Duration(b.since.Load()) {
			b.close()
		}
		return
	}
	if b.all.s.clock.elapsed()-took < time.Duration(b.until.Load()) {
		return // the step was sent before Redis answered again
	}
	if b.failed.Add(1) >= tolerance && !b.open.Load() {
		b.trip(name, err)
	}
}

func (b *breaker) trip(name string, err error) {
	bs := b.all
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if bs.ended || b.open.Load() {
		return
	}
	b.since.Store(int64(bs.s.clock.elapsed()))
	err = bs.s.explained(err)
	b.why.Store(bs.refused(err))
	b.open.Store(true)
	bs.open.Add(1)
	bs.tell(name, err)
	closing := make(chan struct{})
	b.closing = closing
	bs.probing.Go(func() { b.probe(name, closing) })
}

func (b *breaker) close() {
	bs := b.all
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if !b.open.CompareAndSwap(true, false) {
		return
	}
	b.until.Store(int64(bs.s.clock.elapsed()))
	close(b.closing)
	if bs.open.Add(-1) == 0 {
		bs.spell.End(context.Background(), bs.closes, bs.s.opts.Logger, "process", bs.s.name,
			"server", bs.s.link.Server())
	}
}

// tell logs that breakers are open. If Redis doesn't answer at all or turns the client away, tell
// logs nothing about writes. The caller holds mu.
func (bs *breakers) tell(name string, err error) {
	if bs.writes && (bs.s.health.of(name).open.Load() || redislink.TurnsAway(err)) {
		return // not only the writes fail
	}
	if !bs.ended && bs.open.Load() > 0 {
		opens := bs.opens
		if redislink.Crowded(err) {
			opens = crowdedLine
		}
		bs.spell.Begin(context.Background(), opens, bs.s.opts.Logger, "process", bs.s.name, "error",
			err)
	}
}

// probe asks the node that has the name, at growing intervals, until the breaker or the store is
// closed.
func (b *breaker) probe(name string, closing <-chan struct{}) {
	for pause := firstProbe; ; pause = min(2*pause, mostProbe) {
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-b.all.end:
			timer.Stop()
			return
		case <-closing:
			timer.Stop()
			return
		}
		began := time.Now()
		_, err := redislink.Once(context.Background(), b.all.s.link, func(
			ctx context.Context, rdb redis.UniversalClient,
		) (struct{}, error) {
			return struct{}{}, b.all.probe(ctx, rdb, name)
		})
		if err != nil && redislink.IsPanic(err) {
			err = nil // only steps with a caller's context can say whether Redis answers
		}
		b.answered(name, err, time.Since(began))
		if err != nil {
			err = b.all.s.explained(err)
			b.why.Store(b.all.refused(err)) // the cause may be another one by now
			b.all.mu.Lock()
			b.all.tell(name, err)
			b.all.mu.Unlock()
		}
	}
}

// stop ends the probes. It waits for them, but not longer than a step may take.
func (bs *breakers) stop() {
	bs.mu.Lock()
	if !bs.ended {
		bs.ended = true
		close(bs.end)
	}
	bs.mu.Unlock()
	bs.probing.Wait()
}

// refused returns the error for steps that are not sent, made from the error of a step that was
// sent.
func (bs *breakers) refused(err error) *redislink.Trouble {
	why := &redislink.Trouble{Server: bs.s.link.Server(), Cause: "no answer", Err: bs.errs}
	var told *redislink.Trouble
	if errors.As(err, &told) {
		why.Server, why.Cause = told.Server, told.Cause
	}
	return why
}

// refusal returns the error of a step that is not sent.
func (b *breaker) refusal() error {
	if b.open.Load() {
		return b.why.Load()
	}
	return nil
}
