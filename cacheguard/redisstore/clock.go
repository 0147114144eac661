package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// clock is an estimate of the server's clock: its offset to this process' monotonic clock.
type clock struct {
	base time.Time // with a monotonic reading
	last atomic.Pointer[measurement]
}

// measurement is what the server's clock said when this process' clock was at base, and when that was found out.
type measurement struct{ server, taken time.Time }

// clockAge is how long a measurement is good: clocks that drift by 50 ppm differ by 3 ms after it.
const clockAge = time.Minute

func (c *clock) now() time.Time {
	m := c.last.Load()
	if m == nil {
		return time.Now()
	}
	return m.server.Add(time.Since(c.base))
}

func (c *clock) due() bool {
	m := c.last.Load()
	return m != nil && time.Since(m.taken) > clockAge
}

// set takes a measurement: the server read its clock somewhere between sent and received.
func (c *clock) set(server, sent, received time.Time) {
	c.last.Store(&measurement{
		server: server.Add(received.Sub(sent) / 2).Add(-received.Sub(c.base)),
		taken:  received,
	})
}

// measure reads the server's clock: in a cluster always that of the same node.
func (s *Store) measure(ctx context.Context, rdb redis.UniversalClient) error {
	sent := time.Now()
	reply, err := clockScript.Run(ctx, rdb, []string{s.names.clock()}).StringSlice()
	if err != nil {
		return err
	}
	received := time.Now()
	var sec, usec int64
	if len(reply) == 2 {
		if sec, err = strconv.ParseInt(reply[0], 10, 64); err == nil {
			usec, err = strconv.ParseInt(reply[1], 10, 64)
		}
	}
	if err != nil || len(reply) != 2 {
		return fmt.Errorf("TIME answered %q", reply)
	}
	s.clock.set(time.UnixMicro(sec*1e6+usec), sent, received)
	return nil
}

// remeasure measures within OpTimeout.
func (s *Store) remeasure(ctx context.Context) error {
	_, err := call(ctx, s, func(ctx context.Context, rdb redis.UniversalClient) (struct{}, error) {
		return struct{}{}, s.measure(ctx, rdb)
	})
	return err
}

// knowTime measures the clock before the first value is looked at.
func (s *Store) knowTime(ctx context.Context) error {
	if s.clock.last.Load() != nil {
		return nil
	}
	return s.remeasure(ctx)
}
