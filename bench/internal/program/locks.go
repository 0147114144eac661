package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/pgtest"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// locksPlan contains the settings of locks.
type locksPlan struct {
	Processes  int           `json:"processes"`
	Goroutines int           `json:"goroutines"`
	Names      int           `json:"names"`
	Lease      time.Duration `json:"leaseNanos"`
	Time       time.Duration `json:"timeNanos"`
	Wait       time.Duration `json:"-"` // the longest wait after Time for the first hand-over
	Seed       uint64        `json:"seed"`
	Lockers    []string      `json:"lockers"`
	Redis      string        `json:"-"`
	JSON       bool          `json:"-"`
}

// leastStress is the shortest lease of a locker that needs a longer lease than the others.
var leastStress = map[string]time.Duration{
	// A client that has lost its session takes a while to get a new session.
	"zklock": 2 * time.Second,
	// A process that is stopped in a transaction makes all others wait.
	"sqlite":     time.Second,
	"postgresql": time.Second,
}

// handoverWait is long, because on a busy machine locks may time out again and again.
const handoverWait = time.Minute

// locks tests lockers with processes and servers that are stopped.
func locks(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	p, err := parseLocks(args, stderr)
	if err != nil {
		return err
	}
	server, err := openRedis(ctx, p.Redis)
	if err != nil {
		return err
	}
	defer server.close()
	fmt.Fprintf(stderr, "this takes about %v; -seed %d\n", time.Duration(len(p.Lockers))*p.Time,
		p.Seed)
	var seen []lockTally
	for _, name := range p.Lockers {
		fmt.Fprintf(stderr, "  %s\n", name)
		t, err := p.stress(ctx, name, server.addr)
		switch {
		case isMissing(err):
			fmt.Fprintln(stderr, "bench:", err)
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
		seen = append(seen, t)
	}
	if err := p.print(stdout, server.about(ctx), seen); err != nil {
		return err
	}
	return verdict(seen)
}

// isMissing reports whether an error means that a server isn't installed.
func isMissing(err error) bool {
	return errors.Is(err, redistest.ErrNoServer) || errors.Is(err, zktest.ErrNoServer) ||
		errors.Is(err, pgtest.ErrNoServer)
}

func parseLocks(args []string, stderr io.Writer) (p locksPlan, err error) {
	flags := newFlags("bench locks", stderr)
	flags.IntVar(&p.Processes, "processes", 4,
		"processes in which the holders are; each process is stopped and continued at random")
	flags.IntVar(&p.Goroutines, "goroutines", 50, "holders in each process")
	flags.IntVar(&p.Names, "names", 3, "number of locks")
	flags.DurationVar(&p.Lease, "lease", 300*time.Millisecond,
		"time after which the lock of a dead holder ends; for zklock, sqlite and postgresql this is at least one or two seconds; processes are stopped for a fifth of this time to twice this time")
	flags.DurationVar(&p.Time, "time", 5*time.Second,
		"time for which each locker is tested; the test goes on until a lock has been handed over")
	flags.Uint64Var(&p.Seed, "seed", 0, "seed of the random stops and of their times; 0: a random seed")
	flags.StringVar(&p.Redis, "redis", "", redisHelp+"; redlock's masters are always started")
	chosenLockers := flags.String("lockers", strings.Join(lockSystemNames, ","),
		"the lockers to test, of "+strings.Join(lockSystemNames, ", ")+
			"; lockers whose servers are not installed are left out")
	flags.BoolVar(&p.JSON, "json", false, "print JSON")
	if err := parse(flags, args); err != nil {
		return p, err
	}
	p.Wait = handoverWait
	if p.Seed == 0 {
		p.Seed = rand.Uint64()
	}
	var wrong error
	p.Lockers, wrong = chosen("lockers", *chosenLockers, lockSystemNames)
	return p, cmp.Or(wrong, within("processes", p.Processes, 2, 64),
		within("goroutines", p.Goroutines, 1, 1000), within("names", p.Names, 1, 1000),
		within("lease", p.Lease, 100*time.Millisecond, time.Minute),
		within("time", p.Time, 100*time.Millisecond, time.Hour))
}

// verdict returns an error if a locker has shown forbidden behaviour.
func verdict(seen []lockTally) error {
	var errs []error
	for _, t := range seen {
		if t.Overlaps > 0 {
			errs = append(errs,
				fmt.Errorf("%s: %d times two believed to have one lock; the first time %s",
					t.Locker, t.Overlaps, t.First))
		}
		if t.Deaths > 0 {
			errs = append(errs,
				fmt.Errorf("%s: %d processes died; the first one: %s", t.Locker, t.Deaths, t.Death))
		}
		if t.Acquisitions == 0 {
			errs = append(errs, fmt.Errorf("%s: nobody had a lock: %s", t.Locker, t.Trouble))
		}
	}
	return errors.Join(errs...)
}

// print writes the results as text or as JSON.
func (p locksPlan) print(w io.Writer, about about, seen []lockTally) error {
	if p.JSON {
		return printJSON(w, map[string]any{"about": about, "plan": p, "results": seen})
	}
	var s sheet
	s.say("%d processes x %d goroutines for %d names, lease %v or longer, %v each, -seed %d\n%v\n\n",
		p.Processes, p.Goroutines, p.Names, p.Lease, p.Time, p.Seed, about)
	s.columns("locker", "acquired", "handed over", "stops", "masters", "emptied", "lost",
		"overlaps", "excused", "late, stopped",
		"late, running", "refused", "deaths", "troubles")
	for _, one := range seen {
		s.row(one.Locker, one.Acquisitions, one.Handovers, one.Stops, one.Masters, one.Emptied,
			one.Lost, one.Overlaps, one.Excused,
			one.LateStopped, one.LateRunning, one.Refused, one.Deaths, one.Troubles)
	}
	s.say(`
handed over: the number of acquisitions after a holder in another process. stops: how often a process was stopped and continued.
masters: how often a master of redlock was stopped, or was killed and restarted without data. emptied: the number of these
restarts that came sooner than redlock's documentation demands. lost: the number of holders that learned of the loss of their lock.
overlaps: how often two holders believed to have the same lock. After both had begun, both were asked, and Err was nil for both;
or a holder's Err was nil although a larger fencing token than its own had been seen. There must be no overlap. excused: the
number of overlaps within a lease after a master was emptied, or while the machine's clock was set forward by more than 1 ms;
they aren't counted as overlaps.
late: how often a holder acted or began after the next holder had begun. No lock prevents this: the holder has checked Err before,
and one holder in four doesn't check it again after its work. late, stopped: the holder was stopped after its check. late, running:
it wasn't stopped. refused: the number of late actions that were refused because of their fencing tokens. redlock has no tokens.
deaths: the number of processes that ended by themselves. troubles: the number of calls with an error, because a server or the
calling process stood still.
`)
	if at := slices.IndexFunc(seen, func(t lockTally) bool { return t.Trouble != "" }); at >= 0 {
		s.say("The first trouble of %s: %s\n", seen[at].Locker,
			strings.ReplaceAll(seen[at].Trouble, "\n", "; "))
	}
	return s.printTo(w)
}
