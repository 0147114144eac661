package redisstore_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// garbage is an entry that may be stored under the name of a value.
type garbage struct {
	what    string
	put     func(ctx context.Context, rdb redis.UniversalClient, name string) error
	stale   bool // the entry is a value, but not a fresh one
	nothing bool // a reader finds nothing
	short   bool // a request for the lease without a read finds nothing, too
}

func text(what string, b []byte) garbage {
	return garbage{what: what, short: len(b) < 3, put: func(
		ctx context.Context, rdb redis.UniversalClient, name string,
	) error {
		return rdb.Set(ctx, name, b, 0).Err()
	}}
}

// wrongTypes are entries that are no strings.
var wrongTypes = []garbage{
	{what: "list", put: func(ctx context.Context, rdb redis.UniversalClient, name string) error {
		return rdb.RPush(ctx, name, "a", "b").Err()
	}},
	{what: "hash", put: func(ctx context.Context, rdb redis.UniversalClient, name string) error {
		return rdb.HSet(ctx, name, "a", "b").Err()
	}},
	{what: "set", put: func(ctx context.Context, rdb redis.UniversalClient, name string) error {
		return rdb.SAdd(ctx, name, "a", "b").Err()
	}},
	{what: "sorted set", put: func(
		ctx context.Context, rdb redis.UniversalClient, name string,
	) error {
		return rdb.ZAdd(ctx, name, redis.Z{Score: 1, Member: "a"}).Err()
	}},
	{what: "stream", put: func(ctx context.Context, rdb redis.UniversalClient, name string) error {
		return rdb.XAdd(ctx, &redis.XAddArgs{Stream: name, Values: []string{"a", "b"}}).Err()
	}},
}

// garbageValues returns a thousand entries that are no value, made from one that is a value.
func garbageValues(good []byte) []garbage {
	random := rand.New(rand.NewPCG(1, 2))
	all := append([]garbage{text("empty string", nil)}, wrongTypes...)
	for i := range all {
		all[i].nothing = true
	}
	for n := range good {
		all = append(all, text(fmt.Sprintf("the first %d bytes", n), good[:n]))
		all[len(all)-1].nothing = n == 0
	}
	// The bytes after this are the mark, which only makes a value stale.
	for bit := range 8 * frame.MarkStart {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		all = append(all, text(fmt.Sprintf("bit %d flipped", bit), b))
	}
	for bit := 8 * frame.MarkStart; bit < 8*frame.HeaderSize; bit++ {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		all = append(all, garbage{
			what: fmt.Sprintf("bit %d of the mark flipped", bit), put: text("", b).put, stale: true,
		})
	}
	for version := 2; version < 256; version += 23 {
		b := bytes.Clone(good)
		b[0] = byte(version)
		all = append(all, text(fmt.Sprintf("version %d", version), b))
	}
	h, body, err := frame.Parse(good)
	if err != nil {
		panic(err)
	}
	for _, codec := range []uint32{0, 1, h.Codec + 1, ^uint32(0)} {
		other := h
		other.Codec = codec
		all = append(all, text(fmt.Sprintf("codec %d", codec), frame.New(other, body)))
	}
	expired := h
	expired.Created = h.Created.Add(-time.Hour)
	all = append(all, garbage{
		what: "long past its TTL", put: text("", frame.New(expired, body)).put, stale: true,
	})
	future := h
	future.Created = h.Created.Add(time.Hour)
	all = append(all,
		garbage{what: "from the future", put: text("", frame.New(future, body)).put, stale: true})
	for _, foreign := range []string{
		"x", "1", "null", "{}", `{"product":42}`, "PONG", "\x00", "\x01", "\x01\x00",
		"O:8:\"stdClass\":0:{}",
		"\x80\x04\x95", "\x1f\x8b\x08", "*", "rueidisid:1", "LOCKED", "2026-11-21T00:00:00Z",
	} {
		all = append(all, text(fmt.Sprintf("foreign %q", foreign), []byte(foreign)))
	}
	for len(all) < 1000 {
		b := make([]byte, random.IntN(200))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		if random.IntN(2) == 0 && len(b) > 1 {
			b[0], b[1] = frame.Version, 0
		}
		all = append(all, text(fmt.Sprintf("random %x", b), b))
		all[len(all)-1].nothing = len(b) == 0
	}
	return all
}

// Every entry under the name of a value is a value or a miss. A miss is loaded, and the fill
// overwrites the entry.
func TestGarbageValue(t *testing.T) {
	ctx := t.Context()
	r := newReplica(t, redistest.Shared(t).Addr(), newPrefix())
	must(t, r.cache.Set(ctx, "good", "value"))
	good, err := r.rdb.Get(ctx, r.valueName("good")).Bytes()
	must(t, err)

	all := garbageValues(good)
	for i, g := range all {
		key := fmt.Sprint(i)
		must(t, g.put(ctx, r.rdb, r.valueName(key)))
		if res, err := r.cache.Peek(ctx, key); err != nil || res.Status == cacheguard.StatusHit ||
			(res.Status == cacheguard.StatusMiss && res.Value != "") {
			t.Errorf("%s: Peek gave %v, %v; want a miss", g.what, res, err)
		}
		r.missesAndHits(t, g.what, key)
	}
	t.Log(redistest.Figures{
		Fault: "garbage where a value stands", Callers: 2 * len(all),
		Loads: r.events.of(cacheguard.EventLoad),
	})
	corrupt, short := 0, 0
	for _, g := range all {
		if g.stale || g.nothing {
			continue
		}
		if corrupt++; g.short {
			short++
		}
	}
	// Each entry was read twice.
	if got, want := r.events.of(cacheguard.EventCorrupt), 2*corrupt; got > want ||
		got < want-short {
		t.Errorf("corrupt values were counted %d times; want %d, or up to %d fewer", got, want,
			short)
	}
	if lines := r.log.With("cacheguard:"); len(lines) != 1 || r.log.Count("no value") != 1 {
		t.Errorf("%d garbage values were logged in %d lines; want 1", len(all), len(lines))
	}
}

// A write overwrites every entry under the name of a value, and the written value can be read.
func TestGarbageUnderWrite(t *testing.T) {
	ctx := t.Context()
	r := newReplica(t, redistest.Shared(t).Addr(), newPrefix())
	must(t, r.cache.Set(ctx, "good", "value"))
	good, err := r.rdb.Get(ctx, r.valueName("good")).Bytes()
	must(t, err)

	noTags := append(make([]byte, frame.HeaderSize), "\x09x"...)
	all := append(garbageValues(good), text("a remnant without a list of tags", noTags))
	for i, g := range all {
		for name, write := range map[string]func(key string) error{
			"Set": func(key string) error { return r.cache.Set(ctx, key, "written") },
			"Update": func(key string) error {
				_, err := r.cache.Update(ctx, key, newOrigin("written").load)
				return err
			},
		} {
			key := fmt.Sprint(name, i)
			must(t, g.put(ctx, r.rdb, r.valueName(key)))
			must(t, write(key))
			if res, err := r.cache.Peek(ctx, key); res.Value != "written" || err != nil {
				t.Errorf("%s over %s: %v, %v is stored", name, g.what, res, err)
			}
		}
	}
}

// missesAndHits checks that the next call loads, and that the call after it finds the loaded value.
func (r *replica) missesAndHits(t *testing.T, what, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience/3)
	defer cancel()
	o := newOrigin("loaded")
	if v, err := r.cache.Get(ctx, key, o.load); v != "loaded" || err != nil {
		t.Errorf("%s: a caller got %q, %v; want what was loaded", what, v, err)
		return
	}
	res, err := r.cache.GetResult(ctx, key, o.load)
	if res.Value != "loaded" || err != nil || res.Status != cacheguard.StatusHit {
		t.Errorf("%s: the next caller got %v, %v; want a hit", what, res, err)
	}
	if n := o.loads.Load(); n != 1 {
		t.Errorf("%s: %d loads; want 1", what, n)
	}
}

// If an entry in a batch can't be read, it is a miss only for its own key.
func TestGarbageInBatch(t *testing.T) {
	ctx := t.Context()
	server := redistest.Shared(t)
	r := newReplica(t, "", newPrefix(), func(s *site) { s.rdb = own{newClient(t, server.Addr())} })
	must(t, r.cache.Set(ctx, "good", "value"))
	for i, g := range wrongTypes {
		key := fmt.Sprint(i)
		must(t, g.put(ctx, r.rdb, r.valueName(key)))
		good, bad := r.ask(t, 1, "good", mustNotLoad(t)), r.ask(t, 1, key, newOrigin("loaded").load)
		good.wait(t)[0].hit(t, "value")
		bad.got(t, "loaded")
		r.get(t, key, mustNotLoad(t)).hit(t, "loaded")
	}
}

// If the user's codec can't read a value, the value is a miss, also when the codec panics.
func TestGarbageForCodec(t *testing.T) {
	server := redistest.Shared(t)
	prefix := newPrefix()
	written := newReplica(t, server.Addr(), prefix)
	must(t, written.cache.Set(t.Context(), "k", "no number"))
	for name, codec := range map[string]cacheguard.Codec[string]{
		"error": refusing{}, "panic": panicking{},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t, server.Addr(), prefix, func(s *site) { s.cache.Codec = codec })
			o := newOrigin("loaded")
			r.get(t, "k", o.load).is(t, "loaded")
			o.loaded(t, 1)
			if n := r.log.Count("no value"); n != 1 {
				t.Errorf("the value was logged in %d lines; want 1", n)
			}
		})
	}
}

type refusing struct{}

func (refusing) Append(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }
func (refusing) Decode(src []byte) (string, error)           { return "half a value", errDown }
func (refusing) Name() string                                { return "raw" }

type panicking struct{ refusing }

func (panicking) Decode([]byte) (string, error) { panic("not for me") }
