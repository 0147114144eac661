package systemtest_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// P11 on a real Redis, between members of a fleet that share nothing but that.

const (
	// For a message to arrive, on a busy machine; it is a fraction of a millisecond. A tier that
	// misses a message is found nevertheless, because its values live for an hour.
	messageTime = time.Second
	noticeTime  = 2 * time.Second // for a lost subscription to be noticed
)

func withLocal(ttl time.Duration) cacheguard.Options[fact] {
	return cacheguard.Options[fact]{
		TTL: time.Hour, Jitter: -1, Local: cacheguard.Local[fact]{Entries: 1000, TTL: ttl},
	}
}

// What one member changes the other one's tier forgets as soon as the message arrives. How long
// that takes is measured from the change's return to the last read that began after it and still
// got the old version.
func TestLocalTierForgetsWhatOthersChange(t *testing.T) {
	rounds, keys := 300, 100
	if redistest.Full() {
		rounds, keys = 2100, 300
	}
	steadily(t, func(t *testing.T) (wrong []string) {
		at := seat{
			redis: redistest.Shared(t).Addr(),
			store: redisstore.Options{Prefix: memberPrefix(), OpTimeout: replicaPatience},
			cache: withLocal(time.Hour),
		}
		writer, reader := newMember(t, at), newMember(t, at)
		origin := newLedger()
		var settled atomic.Int64
		took := make(map[string][]time.Duration)

		read := func(key string) (cacheguard.Result[fact], time.Time) {
			began := time.Now()
			res, err := reader.cache.GetResult(t.Context(), key, origin.load(key))
			owed := origin.owed(key, began.Add(-messageTime))
			if owed > 0 && owed == origin.read(key).Version {
				settled.Add(1)
			}
			if err != nil || res.Value.Version < owed {
				wrong = append(wrong,
					fmt.Sprintf("%s: got %+v, %v; %v before it was version %d already", key, res,
						err, messageTime, owed))
			}
			return res, began
		}
		for n := range rounds {
			key, way := fmt.Sprint("k", n%keys), ways[n%len(ways)]
			current := origin.read(key).Version
			// Its last change was long ago.
			for res, _ := read(key); !res.Local; res, _ = read(key) {
				if len(wrong) > 0 {
					return wrong
				}
			}
			reading, done := make(chan struct{}), make(chan struct{})
			var last time.Time // when the last read began that got the old version
			go func() {
				defer close(done)
				for first := true; ; first = false {
					res, began := read(key)
					if first {
						close(reading)
					}
					if res.Value.Version > current || len(wrong) > 0 {
						return
					}
					last = began
					<-time.After(20 * time.Microsecond) // it leaves time to others
				}
			}()
			<-reading
			f, err := way.make(t.Context(), writer.cache, origin, key)
			returned := time.Now()
			origin.acknowledge(f, returned)
			if err != nil {
				t.Fatal(way.name, err)
			}
			<-done
			if len(wrong) > 0 {
				return wrong
			}
			took[way.name] = append(took[way.name], max(0, last.Sub(returned)))
		}
		var all []time.Duration
		for _, way := range ways {
			all = append(all, took[way.name]...)
			t.Logf("stale reads after %-10s returned: %s", way.name, percentiles(took[way.name]))
		}
		t.Logf("stale reads after all: %s; %d reads began %v or more after the last change",
			percentiles(all), settled.Load(), messageTime)
		if most := slices.Max(all); most > messageTime {
			wrong = append(wrong,
				fmt.Sprintf("the old version was read %v after its change returned", most))
		}
		return wrong
	})
}

func percentiles(d []time.Duration) string {
	d = slices.Sorted(slices.Values(d))
	at := func(p int) time.Duration { return d[(len(d)-1)*p/100].Round(time.Microsecond) }
	return fmt.Sprintf("p50 %v, p99 %v, max %v of %d", at(50), at(99), at(100), len(d))
}

// A key that nobody changes is asked for once for each Local.TTL.
func TestLocalTierKeepsQuietReadsFromRedis(t *testing.T) {
	const (
		reads = 1000
		ttl   = 500 * time.Millisecond
	)
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	m := newMember(t, seat{
		redis: server.Addr(), store: redisstore.Options{OpTimeout: replicaPatience},
		cache: withLocal(ttl),
	})
	origin := newLedger()
	origin.change("k")
	if _, err := m.cache.Get(t.Context(), "k", origin.load("k")); err != nil {
		t.Fatal(err)
	}
	for try := 1; ; try++ {
		if err := redistest.ResetStats(t.Context(), rdb); err != nil {
			t.Fatal(err)
		}
		began, local := time.Now(), 0
		for range reads {
			res, err := m.cache.GetResult(t.Context(), "k", origin.load("k"))
			if err != nil || res.Value.Version != 1 || res.Status != cacheguard.StatusHit {
				t.Fatalf("got %+v, %v", res, err)
			}
			if res.Local {
				local++
			}
			<-time.After(2 * time.Millisecond) // the reads take longer than a few TTLs
		}
		took := time.Since(began)
		stats, err := redistest.CommandStats(t.Context(), rdb)
		if err != nil {
			t.Fatal(err)
		}
		asked, most := stats["GET"]+stats["MGET"], int64(took/ttl)+1
		t.Logf("%d reads within %v: %d from the tier, %d from Redis", reads,
			took.Round(time.Millisecond), local, asked)
		if asked <= most && int64(reads-local) == asked {
			return
		}
		if try == leastTries || !m.wasTold(cacheguard.MessageLost, began) {
			t.Fatalf("%d reads within %v asked Redis %d times, %d were answered by the tier; want at most %d",
				reads, took, asked, local, most)
		}
		t.Log("once more, because messages didn't arrive for a while")
	}
}

// While messages don't arrive the tier is not used; until that is noticed, its answers are no older
// than that takes; and when messages arrive again it is used again and right.
func TestLocalTierDuringABreak(t *testing.T) {
	redistest.Shared(t) // or there is no need to go on
	for name, c := range map[string]struct{ harm, heal func(*redistest.Proxy) error }{
		"cut": {
			func(p *redistest.Proxy) error {
				err := p.Refuse(true)
				p.Cut()
				return err
			},
			func(p *redistest.Proxy) error { return p.Refuse(false) },
		},
		"half-open": {
			func(p *redistest.Proxy) error { p.Blackhole(true); return nil },
			func(p *redistest.Proxy) error { p.Blackhole(false); return nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			steadily(t, func(t *testing.T) []string { return breakMessages(t, c.harm, c.heal) })
		})
	}
}

// glance is one answer.
type glance struct {
	cacheguard.Result[fact]
	err   error
	key   string
	began time.Time
}

// breakMessages has one member write and another one read, whose messages break and come back.
func breakMessages(t *testing.T, harm, heal func(*redistest.Proxy) error) (wrong []string) {
	const keys, readers = 8, 2
	server := redistest.Shared(t)
	messages := redistest.StartProxy(t, server.Addr())
	at := seat{
		redis: server.Addr(),
		store: redisstore.Options{Prefix: memberPrefix(), OpTimeout: replicaPatience},
		cache: withLocal(time.Hour),
	}
	writer := newMember(t, at)
	at.messages = messages.Addr()
	reader := newMember(t, at)
	defer writer.close()
	defer reader.close()
	origin := newLedger()

	var working sync.WaitGroup
	defer working.Wait()
	end := make(chan struct{})
	ending := sync.OnceFunc(func() { close(end) })
	defer ending()
	pace := func(d time.Duration) bool {
		select {
		case <-end:
			return false
		case <-time.After(d):
			return true
		}
	}
	var failed atomic.Pointer[error]
	working.Go(func() {
		for n := 0; pace(3 * time.Millisecond); n++ {
			f, err := ways[n%len(ways)].make(t.Context(), writer.cache, origin,
				fmt.Sprint("k", n%keys))
			if err != nil {
				failed.Store(&err)
				return
			}
			origin.acknowledge(f, time.Now())
		}
	})
	var glances [readers][]glance
	var seen atomic.Int64
	for r := range readers {
		working.Go(func() {
			for n := 0; pace(500 * time.Microsecond); n++ {
				g := glance{key: fmt.Sprint("k", n/5%keys), began: time.Now()}
				g.Result, g.err = reader.cache.GetResult(t.Context(), g.key, origin.load(g.key))
				glances[r] = append(glances[r], g)
				seen.Add(1)
			}
		})
	}
	more := func(n int64) {
		for until := seen.Load() + n; seen.Load() < until && pace(time.Millisecond); {
		}
	}

	more(500)
	harmed := time.Now()
	if err := harm(messages); err != nil {
		t.Fatal(err)
	}
	noticed, err := reader.heard(cacheguard.MessageLost, "", harmed)
	if err != nil {
		t.Fatal(err)
	}
	more(500)
	healing := time.Now()
	if err := heal(messages); err != nil {
		t.Fatal(err)
	}
	restored, err := reader.heard(cacheguard.MessageRestored, "", healing)
	if err != nil {
		t.Fatal(err)
	}
	more(500)
	ending()
	working.Wait()
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}

	if took := noticed.at.Sub(harmed); took > noticeTime {
		wrong = append(wrong, fmt.Sprintf("the break was noticed after %v", took))
	}
	local := make(map[string]int)
	var oldest time.Duration
	for _, g := range slices.Concat(glances[:]...) {
		phase, allowed := "after it", messageTime
		switch {
		case g.began.Before(harmed):
			phase = "before the break"
		case g.began.Before(noticed.at):
			phase, allowed = "until it was noticed", noticeTime+messageTime
		case g.began.Before(healing):
			phase = "during it"
		case g.began.Before(restored.at):
			phase = "until messages came again"
		}
		if g.Local {
			local[phase]++
		}
		if owed := origin.owed(g.key, g.began.Add(-allowed)); g.err != nil ||
			g.Value.Key != g.key || g.Value.Version < owed {
			wrong = append(wrong,
				fmt.Sprintf("%s: %s got %+v, %v; %v before it was version %d already", phase, g.key,
					g.Result, g.err, allowed, owed))
		}
		for oldest < allowed && g.Value.Version < origin.owed(g.key, g.began.Add(-oldest)) {
			oldest += time.Millisecond
		}
	}
	t.Logf("noticed after %v, over %v after it was mended; the oldest answer was outdated for %v; answers of the tier: %v",
		noticed.at.Sub(harmed), restored.at.Sub(healing), oldest, local)
	if local["during it"] > 0 || local["before the break"] == 0 || local["after it"] == 0 {
		wrong = append(wrong, fmt.Sprintf("answers of the tier: %v", local))
	}
	return wrong
}
