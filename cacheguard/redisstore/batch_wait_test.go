package redisstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A read waits for its turn while Redis answers other reads, but not for ever. If Redis is silent,
// it waits for OpTimeout.
func TestReadWaitsForItsTurn(t *testing.T) {
	const (
		step  = 100 * time.Millisecond // the time between two answers
		limit = 250 * time.Millisecond
	)
	never, late := 100*limit, context.DeadlineExceeded
	for name, c := range map[string]struct {
		silent, done, leaves time.Duration // when Redis falls silent, the batch is read, ctx ends
		want                 time.Duration // when the wait ends
		err                  error
	}{
		"its turn comes soon":   {never, step, never, step, nil},
		"its turn comes late":   {never, 3 * limit, never, 3 * limit, nil},
		"its turn never comes":  {never, never, never, mostPatience * limit, late},
		"Redis is silent":       {0, never, never, limit, late},
		"Redis falls silent":    {3*step + step/2, never, never, 3*step + limit, late},
		"Redis answers at last": {3*step + step/2, 5 * step, never, 5 * step, nil},
		"the caller leaves":     {never, never, 3 * limit, 3 * limit, late},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Store{opts: Options{OpTimeout: limit}}
				s.clock.start()
				s.reads.init(s)
				b := newBatch(1)
				b.lane, b.done = &lane{}, make(chan struct{})
				ctx, cancel := context.WithTimeout(t.Context(), c.leaves)
				defer cancel()
				defer time.AfterFunc(c.done, func() { close(b.done) }).Stop()
				ended := make(chan struct{})
				defer func() { <-ended }()
				over, end := context.WithTimeout(t.Context(), c.silent)
				defer end()
				go func() {
					defer close(ended)
					for tick := time.NewTicker(step); ; {
						b.lane.answered.Store(int64(s.clock.elapsed()))
						select {
						case <-tick.C:
						case <-over.Done():
							return
						}
					}
				}()
				synctest.Wait()
				began := time.Now()
				err := s.reads.wait(ctx, b, limit)
				if took := time.Since(began); took != c.want || !errors.Is(err, c.err) {
					t.Errorf("the wait took %v and ended with %v, want %v and %v", took, err,
						c.want, c.err)
				}
			})
		})
	}
}
