package program

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// setup is what a replica under steady load is told first. It answers when it is ready.
type setup struct {
	Redis, Protection, Key string
	Replica, Size          int
	TTL, Load, Backoff     time.Duration
}

// shift is what it is told then. It answers with its record.
type shift struct {
	Start       int64 // nanoseconds since 1970; all processes are on one machine
	Interval    time.Duration
	Warm, Count int
	Outage      period
}

// record is what a replica has seen. The k-th request is number k of each slice.
type record struct {
	Latency []int64   // nanoseconds from when it was to arrive
	Kind    []kind    // how it was answered
	Made    []version // with what; 0 if with none
	Loads   []load
	Late    []int64 // nanoseconds by which each arrival was issued late, by the generator itself
	Error   string  // one of them
}

// kind is how a request was answered.
type kind byte // JSON has a slice of them as base64

const (
	failed kind = iota
	fresh
	stale // by the protection's own word
)

// steadyReplica is one process of a fleet under steady load. It ends with its orders.
func steadyReplica(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	in, out := json.NewDecoder(bufio.NewReader(stdin)), json.NewEncoder(stdout)
	var s setup
	if err := in.Decode(&s); err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: s.Redis, ContextTimeoutEnabled: true})
	defer rdb.Close()
	if err := fillPool(ctx, rdb); err != nil {
		return err
	}
	o := &origin{replica: s.Replica, size: s.Size, delay: s.Load}
	ask, stop, err := ways[s.Protection](ctx, &stand{rdb: rdb, origin: o, key: s.Key, ttl: s.TTL, backoff: s.Backoff})
	if err != nil {
		return err
	}
	defer stop()
	if err := out.Encode(record{}); err != nil {
		return err
	}
	for {
		var now shift
		if err := in.Decode(&now); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := out.Encode(now.work(ctx, o, ask)); err != nil {
			return err
		}
	}
}

// work asks at each arrival. Those of the warm-up fill the cache and are not recorded, but for
// their loads.
func (s shift) work(ctx context.Context, o *origin, ask asker) record {
	o.fails(s.Outage)
	r := record{Latency: make([]int64, s.Count), Kind: make([]kind, s.Count), Made: make([]version, s.Count)}
	var failure atomic.Pointer[string]
	runtime.GC() // not in the middle of it, for any protection

	a := arrivals{Start: time.Unix(0, s.Start), Interval: s.Interval, Warm: s.Warm, Count: s.Count, pause: pause}
	r.Late = a.issue(ctx, func(k int, due time.Time) {
		value, old, err := ask(ctx)
		took := time.Since(due)
		if k < 0 {
			return
		}
		r.Latency[k] = took.Nanoseconds()
		if err == nil {
			r.Made[k], err = versionOf(value, o.size)
		}
		switch {
		case err != nil:
			text := err.Error()
			failure.Store(&text)
		case old:
			r.Kind[k] = stale
		default:
			r.Kind[k] = fresh
		}
	})
	r.Loads = o.begun()
	if text := failure.Load(); text != nil {
		r.Error = *text
	}
	return r
}
