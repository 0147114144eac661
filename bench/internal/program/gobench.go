package program

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// goBenchmarks is the output of go test -bench. Names are without the number of processors.
type goBenchmarks string

var goBenchmark = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// All returns the values with this unit of the benchmarks whose names match the whole pattern.
func (b goBenchmarks) All(pattern, unit string) (all []float64, err error) {
	name, err := regexp.Compile("^(?:" + pattern + ")$")
	if err != nil {
		return nil, err
	}
	for _, line := range goBenchmark.FindAllStringSubmatch(string(b), -1) {
		words := strings.Fields(line[2])
		if i := slices.Index(words, unit); i > 0 && name.MatchString(line[1]) {
			v, err := strconv.ParseFloat(words[i-1], 64)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		err = fmt.Errorf("no benchmark %s has printed %s", pattern, unit)
	}
	return all, err
}

// Of returns the median of the repetitions of one benchmark.
func (b goBenchmarks) Of(name, unit string) (float64, error) {
	all, err := b.All(regexp.QuoteMeta(name), unit)
	return median(all), err
}

func (b goBenchmarks) Time(name string) (string, error) {
	ns, err := b.Of(name, "ns/op")
	return nanos(ns), err
}

// Ratio returns the time of a benchmark, divided by the time of another one.
func (b goBenchmarks) Ratio(name, other string) (string, error) {
	one, err := b.Of(name, "ns/op")
	two, err2 := b.Of(other, "ns/op")
	return factor(one / two), cmp.Or(err, err2)
}

// Row returns a row of the table of hits: a hit, and the two benchmarks with which it is compared.
func (b goBenchmarks) Row(what, name, get, pipelined string) (string, error) {
	var errs []error
	ours, others := "Hit/"+name+"/cacheguard", "Hit/"+get+"/GET"
	say := func(s string, err error) string {
		errs = append(errs, err)
		return s
	}
	allocs := func(name string) string {
		n, err := b.Of(name, "allocs/op")
		return say(fmt.Sprint(n), err)
	}
	beside := func(other string) string {
		return say(b.Time(other)) + " (" + say(b.Ratio(ours, other)) + ")"
	}
	cells := []string{what, say(b.Time(ours)), beside(others), "-", allocs(ours)}
	switch {
	case pipelined != "":
		others = "Hit/" + pipelined + "/AutoPipeline"
		cells[3] = beside(others)
		cells[4] += ", AutoPipeline has " + allocs(others)
	case name == get:
		cells[4] += ", `GET` has " + allocs(others)
	}
	return "| " + strings.Join(cells, " | ") + " |", errors.Join(errs...)
}
