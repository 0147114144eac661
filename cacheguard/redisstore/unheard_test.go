package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// The generation up to which invalidations may have been missed is the last one that exists, also
// if the server's clock was set back after it, and otherwise the time of the server's clock.
func TestUnheard(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{
		Addr: redistest.Shared(t).Addr(), ContextTimeoutEnabled: true,
	})
	defer rdb.Close()
	s, err := New(rdb, Options{Prefix: "unheard", OpTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	said := time.Unix(1_800_000_000, 0)
	ahead := said.Add(time.Hour).UnixMicro()
	tags, whole := s.names.generations("b"), s.names.whole("b")
	for name, c := range map[string]struct {
		store func() error
		want  time.Duration // later than the clock
	}{
		"nothing":  {func() error { return nil }, 0},
		"the past": {func() error { return rdb.Set(t.Context(), whole, ahead/2, 0).Err() }, 0},
		"a tag": {func() error {
			return rdb.ZAdd(t.Context(), tags, redis.Z{Score: 1, Member: ""},
				redis.Z{Score: float64(ahead), Member: "tag"}).Err()
		}, time.Hour},
		"the whole cache": {func() error {
			return rdb.Set(t.Context(), whole, strconv.FormatInt(ahead, 10), 0).Err()
		}, time.Hour},
		"damaged": {func() error {
			return errors.Join(rdb.Set(t.Context(), tags, "text", 0).Err(),
				rdb.ZAdd(t.Context(), whole, redis.Z{Score: float64(ahead)}).Err())
		}, 0},
		"far ahead": {func() error {
			return rdb.Set(t.Context(), whole, said.Add(48*time.Hour).UnixMicro(), 0).Err()
		}, 24 * time.Hour},
		"another cache": {func() error {
			return rdb.Set(t.Context(), s.names.whole("closed"), ahead, 0).Err()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(rdb.Del(t.Context(), tags, whole).Err(), c.store()); err != nil {
				t.Fatal(err)
			}
			caches := []string{"a", "b", "none"}
			all, err := s.unheard(t.Context(), said, caches)
			if err != nil {
				t.Fatal(err)
			}
			for _, cache := range caches {
				want := said
				if cache == "b" {
					want = said.Add(c.want)
				}
				if got := time.UnixMicro(all[cache]); !got.Equal(want) {
					t.Errorf("cache %s: %v later than the clock, want %v", cache, got.Sub(said),
						want.Sub(said))
				}
			}
		})
	}
}

// If the last generation can't be read, it is taken to be later than the clock.
func TestUnheardWithoutAnswer(t *testing.T) {
	said := time.Unix(1_800_000_000, 0)
	all, err := storeThatHangs(t).unheard(t.Context(), said, []string{"x"})
	if want := said.Add(doubt); err == nil || all["x"] != want.UnixMicro() {
		t.Errorf("the server said %v: %v, %v; want %v", said, time.UnixMicro(all["x"]), err, want)
	}
}

// mute lets this many scripts fail, without an answer or because Redis is loading its data.
type mute struct {
	atomic.Int64
	loads atomic.Bool
}

type loading struct{}

func (loading) Error() string { return "LOADING Redis is loading the dataset in memory" }
func (loading) RedisError()   {}

func (m *mute) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *mute) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (m *mute) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") && m.Add(-1) >= 0 {
			if m.loads.Load() {
				cmd.SetErr(loading{})
			} else {
				cmd.SetErr(context.DeadlineExceeded)
			}
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

// A cache whose messages begin to arrive is told the last generation, which is an hour ahead of the
// clock here: with the others, after the others, while the breaker is open, and as soon as the
// clock can be read.
func TestCachesAreToldWhatWasUnheard(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{
		Addr: redistest.Shared(t).Addr(), ContextTimeoutEnabled: true,
	})
	defer rdb.Close()
	silent := &mute{}
	rdb.AddHook(silent)
	type opening struct {
		s         *Store
		subscribe func()
		told      <-chan int64 // generations that the cache is told
	}
	nothing := func(*testing.T, opening) {}
	subscribe := func(_ *testing.T, o opening) { o.subscribe() }
	for name, c := range map[string]struct{ before, after func(*testing.T, opening) }{
		"with the others":  {nothing, subscribe},
		"after the others": {subscribe, nothing},
		"the breaker is open": {nothing, func(t *testing.T, o opening) {
			silence, b := context.DeadlineExceeded, o.s.health.of("x")
			o.s.health.probe = func(context.Context, redis.UniversalClient, string) error {
				return silence // so that only the clock's step can close it
			}
			for range tolerance {
				b.answered("x", silence, 0)
			}
			if b.refusal() == nil {
				t.Fatal("the breaker is closed")
			}
			o.subscribe()
		}},
		"the clock gives no answer at first": {nothing, func(t *testing.T, o opening) {
			silent.Store(6) // two tries each of a step and of two repetitions, which tell nothing
			o.subscribe()
			if left := silent.Load(); left > 4 {
				t.Errorf("%d scripts have got no answer, want 2", 6-left)
			}
			if guess := <-o.told; guess > time.Now().Add(time.Minute).UnixMicro() {
				t.Errorf("told %v at first, want about now", time.UnixMicro(guess))
			}
		}},
		"Redis loads its data at first": {nothing, func(t *testing.T, o opening) {
			silent.loads.Store(true)
			silent.Store(2)
			o.subscribe()
			if guess := <-o.told; guess > time.Now().Add(time.Minute).UnixMicro() {
				t.Errorf("told %v at first, want about now", time.UnixMicro(guess))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(rdb, Options{Prefix: "told " + name, OpTimeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ahead := time.Now().Add(time.Hour).UnixMicro()
			if err := rdb.Set(t.Context(), s.names.whole("x"), ahead, 0).Err(); err != nil {
				t.Fatal(err)
			}
			told := make(chan int64, 10)
			o := opening{s, func() {
				sub, err := s.subscribe()
				if err != nil {
					t.Fatal(err)
				}
				<-sub.Confirmed()
			}, told}
			silent.loads.Store(false)
			c.before(t, o)
			defer s.Listen("x", func(m cacheguard.Message) {
				if m.Kind == cacheguard.MessageRestored {
					told <- m.Generation
				}
			})()
			c.after(t, o)
			if got := <-told; got != ahead {
				t.Errorf("told %v, want %v", time.UnixMicro(got), time.UnixMicro(ahead))
			}
		})
	}
}

// hanging is a hook of a client whose commands get no answer.
type hanging struct{ redis.Hook }

func (hanging) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		<-ctx.Done()
		cmd.SetErr(ctx.Err())
		return ctx.Err()
	}
}

// After a slow try of the clock, messages don't wait for the next one until four times as long has
// passed. They don't wait at all while the breaker is open.
func TestMessagesHardlyWaitForTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 2 * time.Second
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // never dialled
		defer rdb.Close()
		rdb.AddHook(hanging{&mute{}})
		s, err := New(rdb, Options{OpTimeout: limit, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		e := &ear{s: s, guessed: true}
		tries := 0
		for range 3 * tolerance {
			time.Sleep(guessAge + time.Millisecond) // in a bubble
			began := time.Now()
			e.nowAndThen(t.Context())
			if time.Since(began) > 0 {
				tries++
			}
			for range 16 { // each as after a message
				began := time.Now()
				e.nowAndThen(t.Context())
				if took := time.Since(began); took > 0 {
					t.Errorf("after a try a message waited %v", took)
				}
				time.Sleep(limit / 4)
			}
		}
		if tries != tolerance {
			t.Errorf("%d tries, want %d: then the breaker is open", tries, tolerance)
		}
	})
}
