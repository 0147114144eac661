package eventcount

import "github.com/cacheguard/cacheguard/cacheguard"

// Metric is one or several numbers of a cache that are exported under one name.
type Metric uint8

const (
	Requests Metric = iota
	Misses
	Loads
	LateLoads
	Fills
	LeasesAsked
	LeasesGranted
	LeasesRenewed
	LeasesLost
	CorruptValues
	StoreErrors
	Overloads
	Changes
	LateChanges
	Compared
	Unstored
	Metrics
)

// Value is a number of a metric, and its word in a label if the metric has several.
type Value struct {
	Number
	Word string
}

// Table says what each metric is, and has its numbers in the order of their words.
var Table = [Metrics]struct {
	Help string
	Of   []Value
}{
	Requests: {"Answers to callers, by how they were found; failed: an error that is no 'not found'.",
		[]Value{
			{Hit, "hit"}, {NegativeHit, "negative_hit"},
			{LocalHit, "local_hit"}, {LocalNegativeHit, "local_negative_hit"},
			{Stale, "stale"}, {Coalesced, "coalesced"}, {Loaded, "loaded"}, {Failed, "failed"},
		}},
	Misses: {"Reads of the store that found nothing to serve.", one(miss)},
	Loads: {"Loads that ended, by what they found; audit: those of an audit, for which nobody waits.",
		[]Value{
			{LoadValue, "value"}, {LoadNotFound, "not_found"}, {LoadError, "error"}, {LoadAudit, "audit"},
		}},
	LateLoads: {"Loads that returned after they had been given up.", one(loadLate)},
	Fills: {"Results of loads by whether they were stored; refused: the lease was lost; " +
		"not_stored: by the load's wish, or it can't be.", []Value{
		{fillStored, "stored"}, {fillRefused, "refused"},
		{fillUnknown, "unknown"}, {notStored, "not_stored"},
	}},
	LeasesAsked:   {"Leases that were asked for.", one(leaseAsked)},
	LeasesGranted: {"Leases that were granted.", one(leaseGranted)},
	LeasesRenewed: {"Leases that were renewed.", one(leaseRenewed)},
	LeasesLost:    {"Leases that were lost under a running load.", one(leaseLost)},
	CorruptValues: {"Values in the store that could not be read and counted as misses.", one(corrupt)},
	StoreErrors:   {"Steps in the store that failed.", one(storeError)},
	Overloads:     {"Callers and loads that were turned away.", one(Overloaded)},
	Changes: {"Changes of keys, tags and whole caches that this process has made: " +
		"invalidations, writes.", one(changed)},
	LateChanges: {"Invalidations and other changes that the store was told of later than " +
		"when they were made.", one(sentLate)},
	Compared: {"Answers that were compared with the origin, by what has come of that: " +
		"the words of Difference.",
		words(compared, 0, cacheguard.Differences)},
	Unstored: {"Responses of package middleware that were not stored, by why.",
		words(unstored, 1, cacheguard.Reasons)},
}

func one(n Number) []Value { return []Value{{n, ""}} }

// words has the numbers from first on, by one of the core's enumerations.
func words[E interface {
	~uint8
	String() string
}](first Number, from, end E) (all []Value) {
	for e := from; e < end; e++ {
		all = append(all, Value{first + Number(e), e.String()})
	}
	return all
}

// Gauge is what is read of a cache when metrics are collected.
type Gauge uint8

const (
	LocalEntries Gauge = iota
	LoadsRunning
	LoadsQueued
	Flights
	Callers
	Unsent
	SwitchedOff
	InShadow
	BreakersOpen
	Breakers
	Gauges
)

// GaugeTable says what each gauge is and reads it.
var GaugeTable = [Gauges]struct {
	Help string
	Of   func(s *stats) int
}{
	LocalEntries: {"Entries of the process-local tier.", func(s *stats) int { return s.LocalEntries }},
	LoadsRunning: {"Loads that run.", func(s *stats) int { return s.LoadsRunning }},
	LoadsQueued:  {"Loads that wait for their turn.", func(s *stats) int { return s.LoadsQueued }},
	Flights: {"Keys that are looked up, waited for or loaded.",
		func(s *stats) int { return s.Flights }},
	Callers: {"Callers who wait for flights.", func(s *stats) int { return s.Callers }},
	Unsent: {"Invalidations and other changes that the store has not been told of yet.",
		func(s *stats) int { return s.Unsent }},
	SwitchedOff: {"Caches that a Switch has switched off.",
		func(s *stats) int { return s.SwitchedOff }},
	InShadow: {"Caches that a Switch has in shadow.", func(s *stats) int { return s.InShadow }},
	BreakersOpen: {"Circuit breakers of the store that are open.",
		func(s *stats) int { return s.BreakersOpen }},
	Breakers: {"Circuit breakers of the store.", func(s *stats) int { return s.Breakers }},
}

type stats = cacheguard.Stats

// NinesHelp says what Stats.Nines is, the gauge of caches that have compared something.
const NinesHelp = "How consistent the answers that were compared with the origin have been, " +
	"in nines."

// Duration is a histogram.
type Duration uint8

const (
	LoadTook Duration = iota
	CallerWaited
	FleetWaited
	Durations
)

// DurationHelp says what each histogram is of.
var DurationHelp = [Durations]string{
	LoadTook:     "How long loads took.",
	CallerWaited: "How long callers waited for a load, their own or somebody else's.",
	FleetWaited:  "How long this process waited for a load in another one.",
}

// Buckets are those of durations by default, in seconds.
var Buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// DurationOf returns what Took of an event is, if a histogram has it.
func DurationOf(e *cacheguard.Event) (d Duration, timed bool) {
	switch e.Kind {
	case cacheguard.EventLoad:
		return LoadTook, true
	case cacheguard.EventWaited:
		return FleetWaited, true
	case cacheguard.EventCoalesced, cacheguard.EventLoaded, cacheguard.EventStale:
		return CallerWaited, e.Took > 0 // a stale value that was at hand is no wait
	}
	return Durations, false
}
