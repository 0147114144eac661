package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// A scan counts the entries of its cache, and no entries of other caches, prefixes and programs.
func TestScan(t *testing.T) {
	t.Parallel()
	rdb := newClient(t, redistest.Start(t).Addr())
	ctx, prefix := t.Context(), "odd*[a-z]?\\ prefix"
	s := newStore(t, rdb, redisstore.Options{Prefix: prefix, OpTimeout: patience})
	since(t, rdb, prefix, 10*time.Hour)
	must(t,
		rdb.ZAdd(ctx, redisstore.GenerationsName(prefix, "test"),
			redis.Z{Score: float64(time.Now().UnixMicro()), Member: "gone"}).Err())
	var bytes int64
	entries := rdb.Pipeline()
	put := func(key string, f []byte, ttl time.Duration) {
		bytes += int64(len(f))
		entries.Set(ctx, redisstore.ValueName(prefix, cacheguard.Key{Cache: "test", Key: key}), f,
			ttl)
	}
	var many []string
	for n := range frame.MaxTags {
		many = append(many, fmt.Sprintf("%0*d", frame.MaxTag, n))
	}
	framed := func(ago time.Duration, null bool, size int, tags ...string) []byte {
		h := made(ago)
		h.Tags, h.Null = tagsOf(t, tags...), null
		return frame.New(h, make([]byte, size))
	}
	for n := range 200 {
		put(fmt.Sprint("fresh ", n), framed(20*time.Second, false, 100), 30*time.Minute)
	}
	for n := range 20 {
		put(fmt.Sprint("absent ", n), framed(time.Minute, true, 0), 50*time.Second)
	}
	for n := range 10 {
		put(fmt.Sprint("stale ", n), framed(90*time.Minute, false, 10), 0)
	}
	put("}:lease", framed(0, false, 1), time.Hour) // a key that looks like another name
	put("large", framed(0, false, 100_000), time.Hour)
	put("large and gone", framed(20*time.Second, false, 100_000, "gone"), time.Hour)
	put("many tags", framed(0, false, 100_000, many...), time.Hour)
	put("many tags, one gone", framed(20*time.Second, false, 100_000, append(many[1:], "gone")...),
		time.Hour)
	put("remnant", frame.Remnant(framed(0, false, 1, many...)), time.Hour)
	put("foreign", []byte("x"), time.Hour)
	put("empty", nil, time.Hour)
	entries.RPush(ctx, redisstore.ValueName(prefix, cacheguard.Key{Cache: "test", Key: "list"}),
		"x")
	put("later program's", nil, time.Hour)
	entries.Rename(ctx,
		redisstore.ValueName(prefix, cacheguard.Key{Cache: "test", Key: "later program's"}),
		redisstore.ValueName(prefix, cacheguard.Key{Cache: "test", Key: "later program's"})+":v2")
	for _, other := range []string{
		redisstore.ValueName(prefix, cacheguard.Key{Cache: "test2", Key: "k"}),
		redisstore.ValueName(prefix+"x", cacheguard.Key{Cache: "test", Key: "k"}),
		redisstore.ValueName("oddxxa? prefix", cacheguard.Key{Cache: "test", Key: "k"}),
		prefix + ":test", "other",
	} {
		entries.Set(ctx, other, framed(0, false, 1), 0)
	}
	_, err := entries.Exec(ctx)
	must(t, err)
	_, err = s.Lease(ctx, cacheguard.Key{Cache: "test", Key: "cold"},
		cacheguard.LeaseAsk{Token: load(1), TTL: time.Hour})
	must(t, err)
	for _, key := range []string{"failed", "failed, too"} {
		g, err := s.Lease(ctx, cacheguard.Key{Cache: "test", Key: key},
			cacheguard.LeaseAsk{Token: load(1), TTL: time.Hour})
		must(t, err)
		must(t,
			s.Conclude(ctx, cacheguard.Key{Cache: "test", Key: key}, g.Grant,
				cacheguard.Outcome{Kind: cacheguard.OutcomeFailed}, time.Hour, time.Hour))
	}

	sc, err := s.Scan(ctx, "test", redisstore.ScanOptions{Count: 50, Pause: -1})
	must(t, err)
	presentable(t, sc)
	want := map[redisstore.State]int{
		redisstore.StateFresh: 223, redisstore.StateStale: 10, redisstore.StateInvalid: 2,
		redisstore.StateRemnant: 1, redisstore.StateUnreadable: 3,
	}
	if fmt.Sprint(sc.States) != fmt.Sprint(want) {
		t.Errorf("states %v; want %v", sc.States, want)
	}
	if !sc.Whole || sc.Values != 239 || sc.Bytes != bytes || sc.NotFound != 20 ||
		sc.Unchecked != 4 || sc.Leases != 1 || sc.Records != 2 || sc.Newer != 1 ||
		sc.Largest != 100_000+frame.MaxHead-frame.MaxNote {
		t.Errorf("%+v; want %d bytes", sc, bytes)
	}
	says(t, sc, `cache "test", all of it`, "fresh 223 (93.3 %)", "does not exist 20 (8.4 %)",
		"unreadable 3 (1.3 %)",
		"below 1 min 202 #", "below 1 min 20 #", "longer, or for ever 11 #",
		"1 loads under way, 2 records", "newer 1")

	sc, err = s.Scan(ctx, "test", redisstore.ScanOptions{Limit: 30, Count: 10})
	if err != nil || sc.Whole || sc.Values != 30 || !strings.Contains(sc.String(), "a part of it") {
		t.Errorf("%v, %+v", err, sc)
	}
	if sc, err = s.Scan(ctx, "nothing", redisstore.ScanOptions{}); err != nil || !sc.Whole ||
		sc.Values != 0 {
		t.Errorf("%v, %+v", err, sc)
	}
	presentable(t, sc)
}

// answered is called after each command or pipeline, with the name of the command or "".
type answered func(command string)

func (a answered) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a answered) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer a(cmd.Name())
		return next(ctx, cmd)
	}
}

func (a answered) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer a("")
		return next(ctx, cmds)
	}
}

// ignoring is a server that ignores the pattern of a SCAN.
type ignoring struct{ answered }

func (ignoring) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); cmd.Name() == "scan" {
			args[3] = "*"
		}
		return next(ctx, cmd)
	}
}

// Names that are not the cache's are not looked at, even if a server ignores the pattern.
func TestScanOfAServerThatIgnoresThePattern(t *testing.T) {
	t.Parallel()
	rdb := newClient(t, redistest.Start(t).Addr())
	for _, name := range []string{
		"x", "cg", redisstore.ValueName("cg", cacheguard.Key{Cache: "other", Key: "k"}),
		redisstore.ValueName("cg", cacheguard.Key{Cache: "test", Key: "k"}),
	} {
		must(t, rdb.Set(t.Context(), name, "x", 0).Err())
	}
	rdb.AddHook(ignoring{func(string) {}})
	sc, err := newStore(t, rdb, redisstore.Options{OpTimeout: patience}).Scan(t.Context(), "test",
		redisstore.ScanOptions{Hash: "a"})
	if err != nil || !sc.Whole || sc.Values != 1 {
		t.Errorf("%v, %+v", err, sc)
	}
}

// If the context ends, a scan returns its counts so far.
func TestScanEnds(t *testing.T) {
	t.Parallel()
	rdb := newClient(t, redistest.Start(t).Addr())
	for n := range 500 {
		must(t,
			rdb.Set(t.Context(),
				redisstore.ValueName("cg", cacheguard.Key{Cache: "test", Key: fmt.Sprint(n)}), "x",
				0).Err())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// "time" is sent after a read, and before its result is counted.
	rdb.AddHook(answered(func(command string) {
		if command == "time" {
			cancel()
		}
	}))
	s := newStore(t, rdb, redisstore.Options{OpTimeout: patience})
	sc, err := s.Scan(ctx, "test", redisstore.ScanOptions{Count: 10, Pause: time.Hour})
	if !errors.Is(err, context.Canceled) || sc.Values == 0 || sc.Values == 500 || sc.Whole {
		t.Errorf("%v, %+v", err, sc)
	}
}
