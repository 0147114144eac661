package program

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

var errOrigin = errors.New("the origin is down")

// origin makes versions, slowly, and fails in an outage.
type origin struct {
	replica, size int
	delay         time.Duration

	mu      sync.Mutex // guards what follows
	outage  period
	loads   []load
	version version // the latest, of this replica
}

// period is a time from one moment until just before another one, in nanoseconds since 1970.
type period struct{ From, To int64 }

func (s period) has(at int64) bool { return s.From <= at && at < s.To }

// load is one call of the origin. Moments are in nanoseconds since 1970.
type load struct {
	Begin, End int64   // End is 0 while it runs
	Made       version // 0 if it failed
	Replaces   version // what its caller had in hand, 0 for nothing
}

// load makes a new version. A load that begins in the outage fails when its time is over.
func (o *origin) load(ctx context.Context, replaces version) (string, error) {
	begin := time.Now().UnixNano()
	o.mu.Lock()
	n := len(o.loads)
	o.loads = append(o.loads, load{Begin: begin, Replaces: replaces})
	down := o.outage.has(begin)
	o.mu.Unlock()

	timer := time.NewTimer(o.delay)
	defer timer.Stop()
	var err error
	select {
	case <-timer.C:
		if down {
			err = errOrigin
		}
	case <-ctx.Done():
		err = ctx.Err()
	}

	end := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.loads[n].End = end.UnixNano()
	if err != nil {
		return "", err
	}
	v := max(newVersion(end, o.replica), o.version+0x100)
	o.version, o.loads[n].Made = v, v
	return v.value(o.size), nil
}

func (o *origin) fails(during period) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.outage = during
}

// begun returns all loads so far.
func (o *origin) begun() []load {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.loads)
}
