package systemtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// trio is three members, and a load of one key that is under way in the first one.
type trio struct {
	loading, invalidating, other *member
	origin                       *ledger
	loads                        atomic.Int64
}

func newTrio(t *testing.T, opts cacheguard.Options[fact]) *trio {
	opts.LeaseTTL = replicaPatience // a lease that ends would make another load
	at := seat{
		redis: redistest.Shared(t).Addr(),
		store: redisstore.Options{Prefix: memberPrefix(), OpTimeout: replicaPatience}, cache: opts,
	}
	return &trio{
		loading: newMember(t, at), invalidating: newMember(t, at), other: newMember(t, at),
		origin: newLedger(),
	}
}

// load has tags, and returns when the gate is open.
func (tr *trio) load(
	key string, began chan<- struct{}, gate <-chan struct{},
) cacheguard.EntryFunc[fact] {
	return func(context.Context, cacheguard.Result[fact]) (cacheguard.Entry[fact], error) {
		tr.loads.Add(1)
		f := tr.origin.read(key)
		if gate != nil {
			close(began)
			<-gate
		}
		return cacheguard.Entry[fact]{Value: f, Tags: []string{tagOf(key), "common"}}, nil
	}
}

func (tr *trio) loadMany(_ context.Context, missing []string) (map[string]fact, error) {
	all := make(map[string]fact)
	for _, key := range missing {
		tr.loads.Add(1)
		all[key] = tr.origin.read(key)
	}
	return all, nil
}

// However an invalidation by tag falls on a slow load in another member: no call that begins after
// it in any member gets what was loaded before, with a local tier not once the message has arrived.
// What is loaded then is loaded once.
func TestInvalidateTagsDuringLoads(t *testing.T) {
	tries := 20
	if redistest.Full() {
		tries = 100
	}
	redistest.Shared(t)
	for name, bump := range map[string]way{"tag": byTag, "all": byAll} {
		for tier, opts := range map[string]cacheguard.Options[fact]{
			"store": {}, "local": withLocal(time.Hour),
		} {
			t.Run(name+"/"+tier, func(t *testing.T) {
				tr := newTrio(t, opts)
				for n := range tries {
					tr.race(t, n, bump, tier == "local")
				}
			})
		}
	}
}

func (tr *trio) race(t *testing.T, try int, bump way, local bool) {
	t.Helper()
	key := fmt.Sprint("k", try)
	began, gate := make(chan struct{}), make(chan struct{})
	old := tr.origin.change(key).Version
	var before, after sync.WaitGroup
	get := func(m *member, load cacheguard.EntryFunc[fact], least int64) {
		r, err := m.cache.GetEntry(t.Context(), key, load)
		if err != nil || r.Value.Version < least {
			t.Errorf("try %d: got %+v, %v, want version %d at least", try, r, err, least)
		}
	}
	before.Go(func() { get(tr.loading, tr.load(key, began, gate), old) })
	<-began
	if try%3 == 1 { // and somebody waits for it elsewhere
		before.Go(func() { get(tr.invalidating, tr.load(key, nil, nil), old) })
	}
	switch try % 4 {
	case 0:
		close(gate)
		before.Wait()
	case 1:
		go close(gate)
	}
	sent := time.Now()
	_, err := bump.make(t.Context(), tr.invalidating.cache, tr.origin, key)
	if err != nil {
		t.Fatal(err)
	}
	if local {
		for _, m := range []*member{tr.loading, tr.other} {
			_, err := m.heard(cacheguard.MessageTags, "", sent)
			for n := 0; errors.Is(err, errMissed) && n < mostMissed; n++ {
				// Messages arrive in the order in which they were sent, so a later one will do.
				sent = time.Now()
				if err := tr.invalidating.cache.InvalidateTags(t.Context(), "mark"); err != nil {
					t.Fatal(err)
				}
				_, err = m.heard(cacheguard.MessageTags, "", sent)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := range 12 {
		m := tr.other // where nobody has called before
		if n%2 == 0 {
			m = tr.invalidating
		}
		after.Go(func() {
			if n%3 > 0 {
				get(m, tr.load(key, nil, nil), old+1)
				return
			}
			keys := []string{key, fmt.Sprint("beside ", try)}
			got, err := m.cache.GetMany(t.Context(), keys, tr.loadMany)
			if err != nil || got[key].Version < old+1 {
				t.Errorf("try %d: GetMany got %+v, %v, want version %d at least", try, got, err,
					old+1)
			}
		})
	}
	if try%4 > 1 {
		if try%4 == 2 {
			after.Go(func() { close(gate) })
		} else {
			time.AfterFunc(time.Millisecond, func() { close(gate) })
		}
	}
	before.Wait()
	after.Wait()
	loads := tr.loads.Load()
	for _, m := range []*member{tr.loading, tr.other, tr.invalidating} {
		get(m, tr.load(key, nil, nil), old+1)
	}
	if more := tr.loads.Load() - loads; more > 0 {
		t.Errorf("try %d: %d loads when all was quiet", try, more)
	}
}

// While a key is not invalidated, it is not loaded twice, even if other keys and tags are
// invalidated.
func TestUndisturbedTagsAreLoadedOnce(t *testing.T) {
	keys, rounds := 60, 20
	tr := newTrio(t, cacheguard.Options[fact]{TTL: time.Hour})
	all := []*member{tr.loading, tr.invalidating, tr.other}
	var working sync.WaitGroup
	for n, m := range all {
		for range 4 {
			working.Go(func() {
				for round := range rounds {
					for i := range keys {
						key := fmt.Sprint("k", i)
						if _, err := m.cache.GetEntry(t.Context(), key,
							tr.load(key, nil, nil)); err != nil {
							t.Error(err)
						}
					}
					if n == 1 {
						if err := m.cache.InvalidateTags(t.Context(),
							fmt.Sprint("another ", round)); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
	}
	working.Wait()
	if n := tr.loads.Load(); n != int64(keys) {
		t.Errorf("%d loads of %d keys", n, keys)
	}
}

// A load that is under way when its key is marked is not what anybody finds as fresh afterwards,
// also when the mark's reply is lost; with windows the marked value is served meanwhile, as stale.
func TestMarkStaleDuringLoads(t *testing.T) {
	tries := 20
	if redistest.Full() {
		tries = 100
	}
	for name, windows := range map[string]time.Duration{
		"without windows": 0, "with windows": time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Shared(t)
			proxy := redistest.StartProxy(t, server.Addr())
			opts := cacheguard.Options[fact]{StaleWhileRevalidate: windows}
			at := seat{
				redis: server.Addr(),
				store: redisstore.Options{Prefix: memberPrefix(), OpTimeout: replicaPatience},
				cache: opts,
			}
			tr := &trio{loading: newMember(t, at), other: newMember(t, at), origin: newLedger()}
			at.redis = proxy.Addr()
			tr.invalidating = newMember(t, at)
			for try := range tries {
				tr.mark(t, try, proxy)
			}
		})
	}
}

func (tr *trio) mark(t *testing.T, try int, proxy *redistest.Proxy) {
	t.Helper()
	key := fmt.Sprint("k", try)
	began, gate := make(chan struct{}), make(chan struct{})
	if try%2 == 0 { // or nothing is there to be marked
		first := tr.origin.change(key)
		if err := tr.other.cache.Set(t.Context(), key, first); err != nil {
			t.Fatal(err)
		}
	}
	old := tr.origin.change(key).Version
	var before sync.WaitGroup
	before.Go(func() {
		load := func(ctx context.Context) (fact, error) {
			e, err := tr.load(key, began, gate)(ctx, cacheguard.Result[fact]{})
			return e.Value, err
		}
		if f, err := tr.loading.cache.Refresh(t.Context(), key, load); err != nil ||
			f.Version < old {
			t.Errorf("try %d: the load that was under way gave %+v, %v", try, f, err)
		}
	})
	<-began
	if try%3 == 0 {
		go close(gate)
	}
	var lost *redistest.Fault
	if try%10 == 0 {
		mark, err := redisScript("mark")
		if err != nil {
			t.Fatal(err)
		}
		// The connection ends, so that the step is sent again without a timeout.
		lost = proxy.DropReply(redistest.IsEval(mark), redistest.Hangup)
	}
	if _, err := byMark.make(t.Context(), tr.invalidating.cache, tr.origin, key); err != nil {
		t.Errorf("try %d: %v", try, err)
	}
	if lost != nil {
		waittest.Next(t, "the reply is lost", lost.Struck())
	}
	if try%3 == 1 {
		close(gate)
		before.Wait()
	}
	for _, m := range []*member{tr.other, tr.invalidating} {
		r, err := m.cache.GetEntry(t.Context(), key, tr.load(key, nil, nil))
		if err != nil || r.Value.Version <= old && r.Status != cacheguard.StatusStale {
			t.Errorf("try %d: after the mark %+v, %v", try, r, err)
		}
	}
	if try%3 == 2 {
		close(gate)
	}
	before.Wait()
	for began := time.Now(); ; { // a refresh may be under way
		r, err := tr.other.cache.GetEntry(t.Context(), key, tr.load(key, nil, nil))
		if err != nil || r.Value.Version <= old && r.Status != cacheguard.StatusStale {
			t.Fatalf("try %d: after the mark %+v, %v", try, r, err)
		}
		if r.Value.Version == old+1 && r.Status == cacheguard.StatusHit {
			return
		}
		if time.Since(began) > replicaPatience {
			t.Fatalf("try %d: nothing newer after %v: %+v", try, replicaPatience, r)
		}
	}
}

// redisScript is the text of one of redisstore's scripts, with what it begins with.
func redisScript(name string) (string, error) {
	script, err := os.ReadFile("../../cacheguard/redisstore/" + name + ".lua")
	for _, begin := range []struct {
		name, calls string
	}{
		{"part", " part("}, {"later", "later(KEYS"}, {"wake", "change(ARGV"},
		{"wake", "wake(string"},
	} {
		if err != nil || !strings.Contains(string(script), begin.calls) {
			continue
		}
		var first []byte
		first, err = os.ReadFile("../../cacheguard/redisstore/" + begin.name + ".lua")
		script = append(first, script...)
	}
	return string(script), err
}
