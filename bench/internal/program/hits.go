package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/bench/internal/slowdb"
	"github.com/cacheguard/cacheguard/internal/simulate"
)

// hitsFloor is the contender with which hits are compared, unless -floor names another one. It does
// only a GET or MGET.
const hitsFloor = "none"

// hitsPlan contains the settings of hits, which measures cached keys. Each caller makes one call
// after another. In one part all callers ask for the same key, in another each caller asks for its
// own key.
type hitsPlan struct {
	Goroutines []int         `json:"goroutines"`
	Sizes      []int         `json:"sizes"`     // bytes
	Time       time.Duration `json:"timeNanos"` // of each run
	Repeat     int           `json:"repeat"`
	Many       int           `json:"many"` // keys of each call; 0: one key
	Floor      string        `json:"floor"`
	Against    []string      `json:"contenders"`

	redis string
	json  bool
}

// hitsRow is the result of one contender with these numbers of goroutines and keys, and values of
// this size.
type hitsRow struct {
	Contender  string    `json:"contender"`
	Goroutines int       `json:"goroutines"`
	Keys       int       `json:"keys"`
	Size       int       `json:"size"`
	PerSecond  []float64 `json:"perSecond"` // calls a second, in each repetition
	P50        []int64   `json:"p50Nanos"`
	P99        []int64   `json:"p99Nanos"`
	// PerSecond divided by the floor's, the median of the repetitions; absent without the floor.
	Ratio float64 `json:"ratio,omitempty"`
}

// hits compares how long contenders take to return a cached value.
func hits(ctx context.Context, peers Peers, args []string, stdout, stderr io.Writer) error {
	p, err := parseHits(peers, args, stderr)
	if err != nil {
		return err
	}
	server, err := openRedisOrEmbedded(ctx, p.redis)
	if err != nil {
		return err
	}
	defer server.close()
	chosen, err := contender.Named(peers.contenders(), p.Against...)
	if err != nil {
		return err
	}
	going := newProgress(stderr)
	defer going.done()
	var rows []*hitsRow
	for _, size := range p.Sizes {
		for _, goroutines := range p.Goroutines {
			fleets := slices.Compact([]int{1, goroutines})
			if p.Many > 0 {
				fleets = []int{p.Many}
			}
			for _, keys := range fleets {
				some, err := p.measure(ctx, server, chosen, size, goroutines, keys, going)
				if err != nil {
					return err
				}
				rows = append(rows, some...)
			}
		}
	}
	going.done()
	return p.print(stdout, server.about(ctx), rows)
}

func parseHits(peers Peers, args []string, stderr io.Writer) (p hitsPlan, err error) {
	flags := newFlags("bench hits", stderr)
	goroutines := flags.String("goroutines", "1,64",
		"numbers of callers in one process, each with one call after the other; several callers first all ask for one key, then each for its own key")
	sizes := flags.String("sizes", "100,10240", "sizes of a value in bytes")
	flags.DurationVar(&p.Time, "time", 2*time.Second, "how long each run takes")
	flags.IntVar(&p.Repeat, "repeat", 3, "repetitions, each with fresh processes and another order of the contenders")
	flags.StringVar(&p.redis, "redis", "", redisOrEmbeddedHelp)
	flags.IntVar(&p.Many, "many", 0,
		"number of keys for which each call asks at once, if the contender has a call for many keys; 0: each call asks for one key")
	names := contender.Names(peers.contenders())
	against := flags.String("contenders", hitsFloor+",cacheguard,cacheguard-local",
		"the contenders to compare, of "+strings.Join(names, ", "))
	floor := flags.String("floor", hitsFloor, "the contender with which the others are compared")
	flags.BoolVar(&p.json, "json", false, "print JSON")
	if err := parse(flags, args); err != nil {
		return p, err
	}
	var errs [4]error
	p.Goroutines, errs[0] = counts("goroutines", *goroutines, 1, 100000)
	p.Sizes, errs[1] = counts("sizes", *sizes, versionDigits, 64<<20)
	p.Against, errs[2] = chosen("contenders", *against, names)
	_, errs[3] = chosen("floor", *floor, names)
	p.Floor = *floor
	return p, cmp.Or(errs[0], errs[1], errs[2], errs[3], within("many", p.Many, 0, 10000),
		within("time", p.Time, time.Millisecond, time.Hour), within("repeat", p.Repeat, 1, 1000))
}

// measure runs all contenders, one after another in each repetition.
func (p hitsPlan) measure(
	ctx context.Context, server *server, chosen []contender.Contender, size, goroutines, keys int,
	going *progress,
) (rows []*hitsRow, err error) {
	by := map[string]*hitsRow{}
	for _, c := range chosen {
		by[c.Name] = &hitsRow{Contender: c.Name, Goroutines: goroutines, Keys: keys, Size: size}
		rows = append(rows, by[c.Name])
	}
	a := &arena{server: server, setting: setting{
		Processes: 1, Callers: 1, Size: size, Rounds: 1,
		TTL: time.Hour, LockTTL: 10 * time.Second, Poll: 100 * time.Millisecond,
		Patience: time.Minute + p.Time,
	}}
	for n, c := range turns(p.Repeat, chosen) {
		going.say("%d bytes, %d goroutines, %d keys, %d of %d: %s", size, goroutines, keys, n+1,
			p.Repeat, c.Name)
		cached := scenario{run: func(t *contest) error { return p.run(t, by[c.Name]) }}
		if _, err := a.hold(ctx, cached, c); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	if floor := by[p.Floor]; floor != nil {
		for _, row := range rows {
			var ratios []float64
			for n := range row.PerSecond {
				ratios = append(ratios, row.PerSecond[n]/floor.PerSecond[n])
			}
			row.Ratio = median(ratios)
		}
	}
	return rows, nil
}

// run makes a contender cache the values, and counts their hits.
func (p hitsPlan) run(t *contest, row *hitsRow) error {
	common, keys := t.keyed(row.Keys, slowdb.Plan{})
	if err := t.wait(t.burstAt(common, row.Keys, row.Keys, t.soon(row.Keys)), 1,
		&t.result.Stale); err != nil {
		return err
	}
	o := hitsJob{common, row.Keys, row.Goroutines, p.Time, p.Many > 0}
	a, err := ask(t.ctx, t.fleet[0], job[hitAnswer](o))
	if err != nil {
		return err
	}
	for _, key := range keys {
		if n := len(t.origin.Loads(key)); n != 1 {
			return fmt.Errorf("%d loads of a value that is cached", n)
		}
	}
	row.PerSecond = append(row.PerSecond, float64(a.Calls)/float64(a.Took)*1e9)
	row.P50, row.P99 = append(row.P50, a.P50), append(row.P99, a.P99)
	return nil
}

func (p hitsPlan) print(w io.Writer, about about, rows []*hitsRow) error {
	if p.json {
		return printJSON(w,
			map[string]any{"about": about, "plan": p, "rows": rows, "ratios": p.ratios(rows)})
	}
	var s sheet
	s.say("keys that are cached, one process, %v x %s\n%v\n\n", p.Time, repetitions(p.Repeat),
		about)
	s.columns("bytes", "goroutines", "keys", "contender", "a second", "ratio", "p50 us", "p99 us")
	for _, r := range rows {
		ratio := "-"
		if r.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f", r.Ratio)
		}
		perSecond := fmt.Sprintf("%.0f", median(r.PerSecond))
		s.row(r.Size, r.Goroutines, r.Keys, r.Contender, perSecond, ratio, us(r.P50), us(r.P99))
	}
	s.say(`
a second: the number of calls, the median of the repetitions. ratio: this number, divided by that of %s in the same repetition,
the median. none is a plain GET. p50, p99: the time of one call, medians of the repetitions.
`, p.Floor)
	return s.printTo(w)
}

// ratios returns the ratios of the times of one call, with all goroutines together.
func (p hitsPlan) ratios(rows []*hitsRow) (all []floorRatio) {
	for _, r := range rows {
		i := slices.IndexFunc(rows, func(f *hitsRow) bool {
			return f.Contender == p.Floor && f.Goroutines == r.Goroutines && f.Keys == r.Keys &&
				f.Size == r.Size
		})
		if i < 0 || rows[i] == r {
			continue
		}
		one := floorRatio{
			Name: fmt.Sprintf("hit of %d B, %d goroutines, %d keys, %d a call: %s", r.Size,
				r.Goroutines, r.Keys, max(p.Many, 1), r.Contender), Floor: p.Floor,
		}
		for n := range r.PerSecond {
			one.Each = append(one.Each, rows[i].PerSecond[n]/r.PerSecond[n])
		}
		all = append(all, one)
	}
	return all
}

// us formats the median of several times in microseconds.
func us(ns []int64) string { return fmt.Sprintf("%.2f", float64(median(ns))/1e3) }

var _ = known[hitAnswer](hitsJob{})

// hitsJob runs several callers at the same time, for some time. Each caller asks for cached keys,
// one call after another.
type hitsJob struct {
	Key           string
	Keys, Callers int
	Time          time.Duration
	Many          bool // each call asks for all keys at once
}

// hitAnswer is the result of one process.
type hitAnswer struct {
	Calls    int64
	Took     int64 // nanoseconds for all calls
	P50, P99 int64 // nanoseconds of one call
}

// shortCall is the limit below which not every call is timed, because reading the clock would be a
// large part of the time.
const shortCall = 2 * time.Microsecond

// timed is the number of short calls for each call that is timed.
const timed = 64

func (o hitsJob) do(ctx context.Context, w *worker) (hitAnswer, error) {
	var mu sync.Mutex // guards the fields below
	var calls int64
	var took simulate.Histogram
	var problem error
	var all sync.WaitGroup
	gate := make(chan struct{})
	end := make(chan struct{})
	for i := range o.Callers {
		all.Go(func() {
			<-gate
			n, one, err := hitUntil(o.hit(ctx, w, i), end)
			mu.Lock()
			defer mu.Unlock()
			calls += n
			for _, t := range one {
				took.Add(t, 1)
			}
			if err != nil {
				problem = err
			}
		})
	}
	began := time.Now()
	close(gate)
	timer := time.NewTimer(o.Time)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	close(end)
	all.Wait()
	return hitAnswer{
		Calls: calls, Took: time.Since(began).Nanoseconds(), P50: took.Quantile(0.5),
		P99: took.Quantile(0.99),
	}, problem
}

// hitUntil calls hit until end is closed, but at least once. It returns the number of calls, and
// the times of some of them.
func hitUntil(hit func() error, end <-chan struct{}) (n int64, took []int64, err error) {
	every := int64(1)
	for {
		if n%every == 0 {
			select {
			case <-end:
				// The machine may let a caller begin only after the end. Its first call counts
				// nevertheless, because the result needs at least one.
				if n > 0 {
					return n, took, nil
				}
			default:
			}
			began := time.Now()
			if err := hit(); err != nil {
				return n, took, err
			}
			one := time.Since(began)
			took = append(took, one.Nanoseconds())
			if every == 1 && one < shortCall {
				every = timed
			}
		} else if err := hit(); err != nil {
			return n, took, err
		}
		n++
	}
}

// hit returns a function that makes one call of the i-th caller.
func (o hitsJob) hit(ctx context.Context, w *worker, i int) func() error {
	if !o.Many {
		key := keyOf(o.Key, o.Keys, i)
		return func() error {
			value, found, err := w.Get(ctx, key)
			if err == nil && (!found || len(value) != w.size) {
				err = fmt.Errorf("got a wrong value of %d bytes", len(value))
			}
			return err
		}
	}
	keys := make([]string, o.Keys)
	for i := range keys {
		keys[i] = keyOf(o.Key, o.Keys, i)
	}
	return func() error {
		many, ok := w.Protection.(contender.Many)
		if !ok {
			return errors.New("it has no call for many keys")
		}
		got, err := many.GetMany(ctx, keys)
		for _, key := range keys {
			if err == nil && len(got[key]) != w.size {
				err = fmt.Errorf("got a wrong value of %d bytes", len(got[key]))
			}
		}
		return err
	}
}
