package redisstore

import (
	"errors"
	"strconv"
	"testing"
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
	for _, cache := range []string{"a", "b", "none"} {
		defer s.Listen(cache, func(cacheguard.Message) {})()
	}
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
			got := time.UnixMicro(s.unheard(t.Context(), said, nil)).Sub(said)
			if got != c.want {
				t.Errorf("%v later than the clock, want %v", got, c.want)
			}
		})
	}
}

// If the last generation can't be read, it is taken to be later than the clock, and if the clock
// can't be read either, later than its estimate.
func TestUnheardWithoutAnswer(t *testing.T) {
	s := storeThatHangs(t)
	defer s.Listen("x", func(cacheguard.Message) {})()
	said := time.Unix(1_800_000_000, 0)
	if got, want := s.unheard(t.Context(), said, nil), said.Add(doubt).UnixMicro(); got != want {
		t.Errorf("the server said %v: %v; want %v later", said, time.UnixMicro(got), doubt)
	}
	before := s.clock.now().Add(doubt)
	if got := s.unheard(t.Context(), time.Time{}, errors.New("?")); got < before.UnixMicro() {
		t.Errorf("without an answer: %v, want %v or later", time.UnixMicro(got), before)
	}
}
