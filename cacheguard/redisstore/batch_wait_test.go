package redisstore

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
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

// slowly answers each MGET after a while, and says that nothing is stored.
type slowly time.Duration

func (slowly) DialHook(next redis.DialHook) redis.DialHook { return next }

func (slowly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s slowly) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Duration(s)) // in a bubble
		cmd.(*redis.StringSliceCmd).SetVal(make([]string, len(cmd.Args())-1))
		return nil
	}
}

// The answer to a batch lets the reads of later batches wait on.
func TestCrowdIsReadInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 250 * time.Millisecond
		rdb := redis.NewClient(&redis.Options{
			Addr:   "127.0.0.1:1", // a name would be looked up outside of the bubble
			Dialer: func(context.Context, string, string) (net.Conn, error) { panic("dialled") },
		})
		defer rdb.Close()
		rdb.AddHook(slowly(2 * limit / 5)) // a try may take half of the limit
		s, err := New(rdb, Options{OpTimeout: limit})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		w := want{name: s.names.value(cacheguard.Key{Cache: "c", Key: "k"}), cache: "c"}
		began := time.Now()
		var reading sync.WaitGroup
		for range 5 * mostSenders * firstReads {
			reading.Go(func() {
				if _, _, err := s.reads.batched(t.Context(), w, limit); err != nil {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
			})
		}
		reading.Wait()
		if took := time.Since(began); took < 2*limit {
			t.Errorf("all reads took %v: none had to wait for long", took)
		}
	})
}

// A read whose first try got no answer has waited for half of OpTimeout before it joins a batch.
func TestSecondTryHasLessPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 250 * time.Millisecond
		s := &Store{opts: Options{OpTimeout: limit}}
		s.clock.start()
		s.reads.init(s)
		b := newBatch(1)
		b.lane, b.done = &lane{}, make(chan struct{})
		b.lane.answered.Store(int64(time.Hour)) // Redis answers all the time
		began := time.Now()
		err := s.reads.wait(t.Context(), b, limit/2)
		if took := time.Since(began); took != mostPatience*limit-limit/2 || err == nil {
			t.Errorf("the wait took %v and ended with %v", took, err)
		}
	})
}
