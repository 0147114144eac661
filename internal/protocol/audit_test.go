package protocol_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/internal/childproc"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// found has the mutants that leave old values for callers, each with the difference that an audit
// finds. The other mutants leave no old values, or not for long, or need a network that copies
// messages.
var found = map[string]cacheguard.Difference{
	"4: what was loaded under a lost lease is stored": cacheguard.DiffersLate,
	"6: an invalidation leaves the lease":             cacheguard.DiffersLate,
	"6: an invalidation leaves the value":             cacheguard.DiffersLate,
	"7: a mark leaves the lease":                      cacheguard.DiffersLate,
	"7: a mark marks nothing":                         cacheguard.DiffersLate,
	"8: a claim leaves the lease to who has it":       cacheguard.DiffersLate,
}

// auditedEnv names the environment variable that says how many answers the busy fleet without a
// defect compares. 10^8 answers take about an hour of one processor.
const auditedEnv = "CACHEGUARD_AUDITED"

// mutated names the environment variable that tells TestAuditedFleet with which mutant it was
// built.
const mutated = "CACHEGUARD_MUTATED"

// TestAudit: if the protocol of a fleet has a defect that leaves old values, the audit finds wrong
// answers, and names the kind of difference. In a fleet without a defect, the audit never says that
// an answer was wrong. With CACHEGUARD_TEST=soak all mutants in found run, otherwise every third.
func TestAudit(t *testing.T) {
	t.Run("sound", func(t *testing.T) {
		f := &fleet{T: t, runs: 5 * time.Minute}
		if childproc.Soak() {
			f.runs = 24 * time.Hour
		}
		f.isSound()
	})
	t.Run("sound, and busy", func(t *testing.T) {
		f := &fleet{T: t, runs: 10 * time.Second, busy: true}
		if wanted := os.Getenv(auditedEnv); wanted != "" {
			n, err := strconv.Atoi(wanted)
			if err != nil {
				t.Fatalf("%s: %v", auditedEnv, err)
			}
			f.runs, f.wanted = 1000*time.Hour, n
		}
		f.isSound()
	})
	if _, err := exec.LookPath("go"); err != nil || testing.Short() {
		t.Skip("skipped with -short, and where there is no go command: mutants are compiled")
	}
	for i, rule := range slices.Sorted(maps.Keys(found)) {
		if i%3 != 0 && !childproc.Soak() {
			continue
		}
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off",
				"-timeout=20m", "-v", "-run", "^TestAuditedFleet$",
				"-overlay", protocol.OverlayOf(t, rule), "-ldflags=-s -w", ".")
			cmd.Env = append(os.Environ(), mutated+"="+rule)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "found: "+found[rule].String()+", ") {
				t.Errorf("want it found as %v: %v\n%s", found[rule], err, out)
			}
		})
	}
}

// TestAuditedFleet is run by TestAudit in a build with a mutant. It prints what the audit finds.
func TestAuditedFleet(t *testing.T) {
	rule := os.Getenv(mutated)
	if rule == "" {
		t.Skip("skipped: TestAudit runs it, with the protocol changed")
	}
	f := &fleet{T: t, runs: 5 * time.Minute}
	synctest.Test(t, f.run)
	t.Logf("%d answers compared: %v", f.compared, f.differences)
	for d, n := range f.differences {
		fmt.Printf("found: %v, %d times\n", d, n)
	}
}

// fleet is a few processes on one store that read and change keys at random.
type fleet struct {
	*testing.T
	runs time.Duration // the longest time that the fleet runs
	// In a busy fleet loads take milliseconds instead of seconds, and each process compares up to
	// 1,000 answers a second.
	busy bool

	wanted int    // the fleet ends when so many answers were compared
	end    func() // ends the fleet

	store  *memstore.Store
	caches []*cacheguard.Cache[int]

	mu          sync.Mutex // guards the fields below
	has         map[string]int
	compared    int
	differences map[cacheguard.Difference]int
}

// Observe counts the answers that were compared.
func (f *fleet) Observe(_ context.Context, e cacheguard.Event) {
	if e.Kind == cacheguard.EventCompared {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.compared++; f.compared == f.wanted {
			f.end()
		}
		f.differences[e.Differs]++
	}
}

const (
	processes = 3
	keys      = 6
)

// isSound runs the fleet, and checks that the audit calls no answer wrong.
func (f *fleet) isSound() {
	t := f.T
	synctest.Test(t, f.run)
	if f.compared < 1_000 || f.differences[cacheguard.DiffersMeanwhile] == 0 {
		t.Errorf("%d answers were compared, and none while it was being changed, or few",
			f.compared)
	}
	t.Logf("%d answers compared: %v", f.compared, f.differences)
	for d, n := range f.differences {
		if d.Wrong() {
			t.Errorf("%d answers are called %v", n, d)
		}
	}
}

// run lets the processes read and change keys until the fleet's time is over.
func (f *fleet) run(t *testing.T) {
	f.T = t
	f.has, f.differences = map[string]int{}, map[cacheguard.Difference]int{}
	f.store = memstore.New(memstore.Options{})
	defer f.store.Close()
	if err := f.store.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	for p := range processes {
		opts := cacheguard.Options[int]{
			Name: "audited", TTL: time.Hour, Observer: f, Logger: slog.New(slog.DiscardHandler),
			Audit: cacheguard.Audit{PerSecond: 200, Settle: 200 * time.Millisecond},
		}
		if f.busy {
			opts.Audit.PerSecond = 1000
		}
		if p > 0 {
			opts.Local = cacheguard.Local[int]{Entries: 100}
		}
		c, err := cacheguard.New(f.store, opts)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f.caches = append(f.caches, c)
	}
	ctx, stop := context.WithTimeout(t.Context(), f.runs)
	defer stop()
	f.end = stop
	var working sync.WaitGroup
	for p, c := range f.caches {
		for range 4 {
			working.Go(func() { f.read(ctx, c) })
		}
		for k := p; k < keys; k += processes {
			working.Go(func() { f.write(ctx, c, fmt.Sprint(k)) })
		}
	}
	working.Wait()
	time.Sleep(time.Second) // a second of the bubble's time, in which the last comparisons end
	synctest.Wait()
}

// pause sleeps for a random time of less than most.
func pause(most time.Duration) { time.Sleep(rand.N(most)) }

// load returns a load that reads the origin at once, and returns the value some time later.
func (f *fleet) load(key string) cacheguard.LoadFunc[int] {
	return func(context.Context) (int, error) {
		f.mu.Lock()
		v := f.has[key]
		f.mu.Unlock()
		if f.busy {
			pause(20 * time.Millisecond)
		} else {
			pause(2 * time.Second)
		}
		return v, nil
	}
}

// read reads random keys until ctx ends.
func (f *fleet) read(ctx context.Context, c *cacheguard.Cache[int]) {
	for ctx.Err() == nil {
		key := fmt.Sprint(rand.N(keys))
		var err error
		if rand.N(100) > 0 {
			_, err = c.Get(f.Context(), key, f.load(key))
		} else {
			_, err = c.Refresh(f.Context(), key, f.load(key))
		}
		if err != nil {
			f.Error(err)
		}
		pause(2 * time.Millisecond)
	}
}

// write changes a key at the origin again and again, and then tells the cache, each time by a
// random method. No other goroutine changes this key.
func (f *fleet) write(ctx context.Context, c *cacheguard.Cache[int], key string) {
	change := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.has[key]++
		return f.has[key]
	}
	for ctx.Err() == nil {
		pause(6 * time.Second)
		var err error
		switch rand.N(4) {
		case 0:
			change()
			pause(100 * time.Millisecond)
			err = c.Invalidate(f.Context(), key)
		case 1:
			change()
			pause(100 * time.Millisecond)
			err = c.MarkStale(f.Context(), key)
		case 2:
			v := change()
			pause(100 * time.Millisecond)
			err = c.Set(f.Context(), key, v)
		case 3:
			_, err = c.Update(f.Context(), key, func(context.Context) (int, error) {
				v := change()
				pause(time.Second)
				return v, nil
			})
		}
		if err != nil {
			f.Error(err)
		}
	}
}
