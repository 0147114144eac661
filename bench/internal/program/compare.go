package program

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
)

// floorRatio is the ratio of a cost to that of a floor, in each repetition of one run. A smaller
// ratio is better. Ratios of two runs can be compared, but times can't.
type floorRatio struct {
	Name  string    `json:"name"`
	Floor string    `json:"floor"`
	Each  []float64 `json:"each"`
}

// ratios returns the ratios for a cold key: the contender's 99th percentile of latency without the
// load, divided by that of singleflight, where callers share a load in each process.
func (p runPlan) ratios(reports []matchReport) (all []floorRatio) {
	for _, r := range reports {
		floor := r.Results[growthFloor]
		for _, name := range p.Against {
			if r.Scenario != "cold" || name == growthFloor || len(floor) == 0 {
				continue
			}
			one := floorRatio{
				Name: fmt.Sprintf("cold, p99 without the load, %dx%d: %s", r.Processes, r.Callers,
					name), Floor: growthFloor,
			}
			for n, got := range r.Results[name] {
				one.Each = append(one.Each,
					float64(got.P99-p.Load.Nanoseconds())/float64(max(1,
						floor[n].P99-p.Load.Nanoseconds())))
			}
			all = append(all, one)
		}
	}
	return all
}

// errSlower is the error of compare if a contender has become slower.
var errSlower = errors.New("slower than before")

// compare compares the ratios of two runs of a command with -json.
func compare(args []string, stdout, stderr io.Writer) error {
	flags := newFlags("bench compare", stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr,
			"compare [-tolerance 0.1] before.json after.json: files that hits or a scenario has printed with -json; the exit code is 1 if a ratio to a floor has got worse")
		flags.PrintDefaults()
	}
	tolerance := flags.Float64("tolerance", 0.1,
		"how much larger the median of a ratio may be, as a share")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return usageError(err.Error())
	}
	if flags.NArg() != 2 {
		return usageError("compare takes two files")
	}
	if err := within("tolerance", *tolerance, 0, 1); err != nil {
		return err
	}
	before, err1 := readRatios(flags.Arg(0))
	after, err2 := readRatios(flags.Arg(1))
	if err := cmp.Or(err1, err2); err != nil {
		return err
	}
	var s sheet
	s.columnsAt(0, "ratio", "to", "before", "after")
	var err error
	for _, b := range before {
		i := slices.IndexFunc(after, func(a floorRatio) bool {
			return a.Name == b.Name && a.Floor == b.Floor
		})
		if i < 0 || len(after[i].Each) == 0 {
			return fmt.Errorf("%s has no ratio %q to %s", flags.Arg(1), b.Name, b.Floor)
		}
		verdict := ""
		if median(after[i].Each) > median(b.Each)*(1+*tolerance) {
			verdict, err = "worse", errSlower
		}
		s.row(b.Name, b.Floor, b, after[i], remark(verdict))
	}
	return cmp.Or(s.printTo(stdout), err)
}

func (r floorRatio) String() string {
	return fmt.Sprintf("%.2f (%.2f-%.2f)", median(r.Each), slices.Min(r.Each), slices.Max(r.Each))
}

func readRatios(file string) ([]floorRatio, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var printed struct {
		Ratios []floorRatio `json:"ratios"`
	}
	if err := json.Unmarshal(text, &printed); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(printed.Ratios) == 0 ||
		slices.ContainsFunc(printed.Ratios, func(r floorRatio) bool { return len(r.Each) == 0 }) {
		return nil, fmt.Errorf("%s has no ratios: it wants a floor and something beside it", file)
	}
	return printed.Ratios, nil
}
