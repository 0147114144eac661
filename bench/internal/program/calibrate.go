package program

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/simulate"
)

// calibration is what the machine takes for the steps of a stampede, none of which is measured with
// one.
type calibration struct {
	Start    int64 `json:"startNanos"`   // processor time for each caller
	Client   int64 `json:"clientNanos"`  // and for each of its commands
	Server   int64 `json:"serverNanos"`  // and of Redis for it
	Script   int64 `json:"scriptNanos"`  // of Redis for a script
	Message  int64 `json:"messageNanos"` // of Redis for each process that is told
	Idle     int64 `json:"idleNanos"`    // a round trip when nothing else runs
	Delivery int64 `json:"deliveryNanos"`
	Late     int64 `json:"lateNanos"`  // how late a timer is
	Begin    int64 `json:"beginNanos"` // how late the first caller begins
}

// calibrate measures with as many processes and callers as the stampede has.
func (p plan) calibrate(ctx context.Context, server *server) (c calibration, err error) {
	rdb := server.rdb
	if err := c.alone(ctx, rdb); err != nil {
		return c, err
	}
	all := int64(p.Processes * p.Callers)
	cores := int64(runtime.NumCPU())
	p.Load = 0
	noop, err := p.runOne(ctx, server, "noop")
	if err != nil {
		return c, err
	}
	before, err := serverTime(ctx, rdb)
	if err != nil {
		return c, err
	}
	ping, err := p.runOne(ctx, server, "ping")
	if err != nil {
		return c, err
	}
	after, err := serverTime(ctx, rdb)
	if err != nil {
		return c, err
	}
	// The 99th percentile of callers is done when 99 of 100 parts of the work are.
	c.Begin = max(0, 2*noop.P50-noop.P99)
	c.Start = max(1, (noop.P99-c.Begin)*cores*100/99/all)
	c.Server = max(1, (after-before)/(all*int64(p.Rounds+p.warmUp)))
	c.Client = max(1, (ping.P99-c.Begin)*cores*100/99/all-c.Start-c.Server)
	c.Script = c.Server + max(0, c.Script)
	c.Message = c.Server / 2 // a write, of the read and the write that a command takes
	return c, nil
}

// alone measures what takes time when nothing else runs.
func (c *calibration) alone(ctx context.Context, rdb *redis.Client) error {
	const times = 1000
	ping, err := repeated(times, func() error { return rdb.Ping(ctx).Err() })
	if err != nil {
		return err
	}
	// As many steps as the scripts of a lease have.
	script := redis.NewScript(`redis.call('MGET', KEYS[1], KEYS[2]) redis.call('TIME') redis.call('SET', KEYS[1], ARGV[1], 'PX', 1000) return {'granted', '1', 0}`)
	if err := script.Load(ctx, rdb).Err(); err != nil {
		return err
	}
	run, err := repeated(times, func() error {
		return script.EvalSha(ctx, rdb, []string{"{calibrate}1", "{calibrate}2"}, "x").Err()
	})
	if err != nil {
		return err
	}
	c.Idle, c.Script = ping, run-ping

	sub := rdb.Subscribe(ctx, "calibrate")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		return err
	}
	told, err := repeated(times, func() error {
		_, err := sub.ReceiveMessage(ctx)
		return err
	}, func() error { return rdb.Publish(ctx, "calibrate", "x").Err() })
	if err != nil {
		return err
	}
	c.Delivery = told
	const patience = 10 * time.Millisecond
	c.Late, err = repeated(50, func() error {
		timer := time.NewTimer(patience)
		<-timer.C
		return ctx.Err()
	})
	c.Late = max(0, c.Late-int64(patience))
	return err
}

// repeated is the median time of what is done so many times. What comes first is not counted.
func repeated(times int, do func() error, first ...func() error) (int64, error) {
	took := make([]int64, times)
	for i := range took {
		for _, f := range first {
			if err := f(); err != nil {
				return 0, err
			}
		}
		began := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		took[i] = time.Since(began).Nanoseconds()
	}
	return quantile(took, 0.5), nil
}

// serverTime is the processor time that Redis has taken so far, in nanoseconds.
func serverTime(ctx context.Context, rdb *redis.Client) (int64, error) {
	sys, err := serverSays(ctx, rdb, "cpu", "used_cpu_sys")
	user, err2 := serverSays(ctx, rdb, "cpu", "used_cpu_user")
	return int64((sys + user) * 1e9), errors.Join(err, err2)
}

// burst is the stampede of a plan, with what was measured.
func (c calibration) burst(p plan, seed uint64) simulate.Burst {
	d := func(ns int64) time.Duration { return time.Duration(ns) }
	return simulate.Burst{
		Seed: seed, Processes: p.Processes, Callers: p.Callers, Cores: runtime.NumCPU(), Load: p.Load + d(c.Late),
		PollLeast: pollLeast, PollMost: pollMost,
		RoundTrip: d(max(0, c.Idle-c.Client-c.Server)), Noise: 0, Delivery: d(c.Delivery),
		Start: d(c.Start), Wake: d(c.Start), Client: d(c.Client), Command: d(c.Server), Script: d(c.Script), Message: d(c.Message),
	}
}
