package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redislink"
)

// clock is an estimate of the server's clock, as an offset to this process' monotonic clock.
type clock struct {
	base time.Time // with a monotonic reading
	last atomic.Pointer[measurement]

	// When the last measurement was tried, as a time.Duration since base; for one that failed, when
	// it ended. took is how long that one took; 0: the last one didn't fail.
	tried    atomic.Int64
	took     atomic.Int64
	borrowed atomic.Int64 // when another node's clock was last asked for, in nanoseconds since base
	refused  atomic.Int32 // failed requests for another node's clock in a row
}

// measurement is the result of a measurement. server is the time that the server's clock showed at
// the moment clock.base. taken is when this process measured, or the zero Time if the clock is not
// known.
type measurement struct{ server, taken time.Time }

// clockAge is the age from which a new measurement is tried. Clocks that drift by 50 ppm differ by
// 3 ms after this time.
const clockAge = time.Minute

// retryAge is the pause after a failed measurement.
const retryAge = clockAge / 6

// guessAge is the pause while caches were told an estimate.
const guessAge = time.Second

// start makes the clock show this process' time until it is measured.
func (c *clock) start() {
	c.base = time.Now()
	c.last.Store(&measurement{server: c.base})
}

// known reports whether the clock has been measured.
func (c *clock) known() bool { return !c.last.Load().taken.IsZero() }

func (c *clock) now() time.Time { return c.last.Load().server.Add(time.Since(c.base)) }

// Now returns the time by Redis' clock. This is the clock of one node, kept as an offset to this
// process' monotonic clock, so that the wall clocks of clients don't matter. If the clock wasn't
// measured yet, for instance because the first call is a Set, Now measures it.
func (s *Store) Now() time.Time {
	if !s.clock.known() {
		_ = s.knowTime(context.Background())
	}
	return s.clock.now()
}

// elapsed returns the time since base.
func (c *clock) elapsed() time.Duration { return time.Since(c.base) }

func (c *clock) due() bool {
	return c.known() && time.Since(c.last.Load().taken) > clockAge && c.rested(retryAge)
}

// rested reports whether the last try of a measurement was this long ago. After a failed try it
// was also four times as long ago as the try took: messages may wait for tries.
func (c *clock) rested(pause time.Duration) bool {
	pause = max(pause, 4*time.Duration(c.took.Load()))
	return c.elapsed()-time.Duration(c.tried.Load()) > pause
}

// failed records that a measurement that was tried at began has failed.
func (c *clock) failed(began time.Duration) {
	ended := c.elapsed()
	c.took.Store(int64(ended - began))
	c.tried.Store(int64(ended))
}

// sample is one reading of the server's clock: the server read it between sent and received.
type sample struct{ server, sent, received time.Time }

func (m sample) trip() time.Duration { return m.received.Sub(m.sent) }

func (c *clock) set(m sample) { c.last.Store(c.of(m)) }

func (c *clock) of(m sample) *measurement {
	return &measurement{
		server: m.server.Add(m.trip() / 2).Add(-m.received.Sub(c.base)),
		taken:  m.received,
	}
}

// borrowPause is the pause before another node's clock is asked for again after five failures.
const borrowPause = time.Second

const (
	samples  = 3                     // most samples for one measurement
	goodTrip = 20 * time.Millisecond // a sample with a trip this short is good enough
)

// remeasure is measure unless the breaker is open.
func (s *Store) remeasure(ctx context.Context) (said time.Time, err error) {
	if err := s.health.of(s.names.clock()).refusal(); err != nil {
		return said, err
	}
	return s.measure(ctx)
}

// measure reads the server's clock, with OpTimeout for each sample. A sample with a slow trip says
// little about the time, so measure takes up to three samples and uses the quickest. It returns the
// server's time in the last sample.
func (s *Store) measure(ctx context.Context) (said time.Time, err error) {
	began := s.clock.elapsed()
	s.clock.tried.Store(int64(began))
	var best sample
	for n := range samples {
		m, err := lookAnyway(ctx, s, s.names.clock(), s.readClock)
		if err != nil {
			if n > 0 {
				break // use the samples that there are
			}
			s.clock.failed(began)
			return said, err
		}
		said = m.server
		if n == 0 || m.trip() < best.trip() {
			best = m
		}
		if best.trip() <= goodTrip {
			break
		}
	}
	s.clock.took.Store(0)
	s.clock.set(best)
	return said, nil
}

// readClock reads the server's clock. In a cluster it always reads the clock of the same node.
func (s *Store) readClock(ctx context.Context, rdb redis.UniversalClient) (m sample, err error) {
	m.sent = time.Now()
	reply, err := clockScript.Run(ctx, rdb, []string{s.names.clock()}).StringSlice()
	if err != nil {
		return m, err
	}
	m.received = time.Now()
	var sec, usec int64
	if len(reply) == 2 {
		if sec, err = strconv.ParseInt(reply[0], 10, 64); err == nil {
			usec, err = strconv.ParseInt(reply[1], 10, 64)
		}
	}
	if err != nil || len(reply) != 2 || sec <= 0 || sec >= pastAll/1_000_000 || usec < 0 ||
		usec >= 1_000_000 {
		return m, fmt.Errorf("TIME answered %q", reply)
	}
	m.server = time.UnixMicro(sec*1e6 + usec)
	return m, nil
}

// knowTime measures the clock before the first value is checked.
func (s *Store) knowTime(ctx context.Context) error {
	if s.clock.known() {
		return nil
	}
	_, err := s.remeasure(ctx)
	if c, ok := s.link.Client().(*redis.ClusterClient); ok && err != nil {
		err = s.borrowTime(ctx, c)
	}
	return err
}

// borrowTime reads the clock of any node of a cluster while the usual node is away. The nodes'
// clocks differ a little. But without any clock, the nodes that answer could not be used.
func (s *Store) borrowTime(ctx context.Context, c *redis.ClusterClient) error {
	// While no node answers, borrowTime asks only from time to time, so that not each caller waits
	// for another node.
	if s.clock.refused.Load() >= tolerance+2 &&
		s.clock.elapsed()-time.Duration(s.clock.borrowed.Load()) < borrowPause {
		return &redislink.Trouble{Server: s.link.Server(), Cause: "no answer", Err: errOpen}
	}
	anywhere := rand.Text()
	m, err := look(ctx, s, anywhere, func(
		ctx context.Context, _ redis.UniversalClient,
	) (m sample, err error) {
		node, err := c.MasterForKey(ctx, anywhere)
		if err != nil {
			return m, err
		}
		m.sent = time.Now()
		m.server, err = node.Time(ctx).Result()
		m.received = time.Now()
		return m, err
	})
	s.clock.borrowed.Store(int64(s.clock.elapsed()))
	s.clock.refused.Add(1)
	if err == nil {
		s.clock.refused.Store(0)
		m := s.clock.of(m)
		m.taken = time.Time{} // the usual node is asked again next time
		s.clock.last.Store(m)
	}
	return err
}
