package eventcount

import (
	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/report"
)

// Name is the name of a metric in Prometheus, after a namespace, and in OpenTelemetry, after
// "cacheguard.". Unit is the metric's unit in OpenTelemetry.
type Name struct{ Prometheus, OTel, Unit string }

// Metric is one or several numbers of a cache that are exported under one name.
type Metric struct {
	Name
	Help  string
	Label string  // the label of the words in Prometheus; "" if there is one number
	Of    []Value // in the order of their words
}

// Value is a number of a metric, with its word if the metric has several numbers.
type Value struct {
	Number
	Word string
}

// Metrics are the metrics. Loads have no name in OpenTelemetry, because the histogram of their
// durations counts them there.
var Metrics = []Metric{
	{Name{"requests_total", "requests", "{request}"},
		"Answers to callers, by result. failed: an error other than 'not found'.",
		"result", []Value{
			{Hit, "hit"}, {NegativeHit, "negative_hit"},
			{LocalHit, "local_hit"}, {LocalNegativeHit, "local_negative_hit"},
			{Stale, "stale"}, {Coalesced, "coalesced"}, {Loaded, "loaded"}, {Failed, "failed"},
		}},
	{Name{"misses_total", "misses", "{miss}"},
		"Reads of the store that found nothing to serve.", "", one(miss)},
	{Name{"loads_total", "", ""},
		"Loads that ended, by outcome. cancelled: loads that failed because the cache had " +
			"cancelled them. audit: loads of an audit, for which nobody waits.",
		Outcome, []Value{
			{loadValue, "value"}, {loadNotFound, "not_found"}, {loadError, "error"},
			{loadCancelled, "cancelled"}, {loadAudit, "audit"},
		}},
	{Name{"late_loads_total", "loads.late", "{load}"},
		"Loads that returned after the cache had given them up.", "", one(loadLate)},
	{Name{"fills_total", "fills", "{fill}"},
		"Results of loads, by whether they were stored. refused: the lease was lost. unknown: " +
			"the store did not answer. not_stored: the load set NoStore, NegativeTTL is " +
			"negative, or the result can't be stored.",
		"result", []Value{
			{fillStored, "stored"}, {fillRefused, "refused"},
			{fillUnknown, "unknown"}, {notStored, "not_stored"},
		}},
	{Name{"lease_requests_total", "leases.asked", "{lease}"},
		"Requests for a lease.", "", one(leaseAsked)},
	{Name{"lease_grants_total", "leases.granted", "{lease}"},
		"Leases that were granted.", "", one(leaseGranted)},
	{Name{"lease_renewals_total", "leases.renewed", "{renewal}"},
		"Leases that were renewed.", "", one(leaseRenewed)},
	{Name{"lost_leases_total", "leases.lost", "{lease}"},
		"Leases that were lost under a running load.", "", one(leaseLost)},
	{Name{"corrupt_values_total", "values.corrupt", "{value}"},
		"Values in the store that could not be read and counted as misses.", "", one(corrupt)},
	{Name{"store_errors_total", "store.errors", "{error}"},
		"Steps of the store that failed, by the class of the cause.", Cause, classes()},
	{Name{"overloads_total", "overloads", "{refusal}"},
		"Callers and loads that were turned away.", "", one(Overloaded)},
	{Name{"changes_total", "changes", "{change}"},
		"Changes of keys, tags and whole caches by this process: invalidations and writes.",
		"", one(changed)},
	{Name{"late_changes_total", "changes.late", "{change}"},
		"Changes that reached the store only when they were repeated.",
		"", one(sentLate)},
	{Name{"compared_total", "compared", "{comparison}"},
		"Answers that were compared with the origin, by difference (same: none).",
		"result", words(compared, 0, cacheguard.Differences)},
	{Name{"unstored_total", "unstored", "{response}"},
		"Responses of package middleware that were not stored, by reason.",
		"reason", words(unstored, 1, cacheguard.Reasons)},
}

// Outcome is the label for the end of loads, Cause the label for what is wrong with the store.
const (
	Outcome = "outcome"
	Cause   = "cause"
)

// classes returns the values for the classes of causes.
func classes() (all []Value) {
	for i, class := range report.Classes {
		all = append(all, Value{storeError + Number(i), class})
	}
	return all
}

func one(n Number) []Value { return []Value{{n, ""}} }

// words returns the values for one of the core's enumerations, whose numbers begin with first.
func words[E interface {
	~uint8
	String() string
}](first Number, from, end E) (all []Value) {
	for e := from; e < end; e++ {
		all = append(all, Value{first + Number(e), e.String()})
	}
	return all
}

type stats = cacheguard.Stats

// Gauges are read when metrics are collected.
var Gauges = []struct {
	Name
	Help string
	Of   func(s *stats) int
}{
	{Name{"local_entries", "local.entries", "{entry}"},
		"Entries of the process-local tier.", func(s *stats) int { return s.LocalEntries }},
	{Name{"loads_running", "loads.running", "{load}"},
		"Loads that run now.", func(s *stats) int { return s.LoadsRunning }},
	{Name{"loads_queued", "loads.queued", "{load}"},
		"Loads that wait for a slot of MaxLoads or of a limiter.",
		func(s *stats) int { return s.LoadsQueued }},
	{Name{"flights", "flights", "{flight}"},
		"Keys that are looked up, waited for or loaded.", func(s *stats) int { return s.Flights }},
	{Name{"callers", "callers", "{caller}"},
		"Callers who wait for flights.", func(s *stats) int { return s.Callers }},
	{Name{"unsent_changes", "changes.unsent", "{change}"},
		"Keys and tags whose change has not reached the store yet.",
		func(s *stats) int { return s.Unsent }},
	{Name{"switched_off", "switched_off", "{cache}"},
		"Caches that a Switch has switched off.", func(s *stats) int { return s.SwitchedOff }},
	{Name{"in_shadow", "in_shadow", "{cache}"},
		"Caches that a Switch has set to shadow mode.", func(s *stats) int { return s.InShadow }},
	{Name{"breakers_open", "breakers.open", "{breaker}"},
		"Circuit breakers of the store that are open.", func(s *stats) int {
			return s.BreakersOpen
		}},
	{Name{"breakers", "breakers", "{breaker}"},
		"Circuit breakers of the store.", func(s *stats) int { return s.Breakers }},
}

// Nines is the gauge of Stats.Nines, for caches that have compared answers.
var Nines = struct {
	Name
	Help string
}{
	Name{"consistency_nines", "consistency", "{nine}"},
	"Share of the compared answers that were right, in nines: 3 is 99.9 %.",
}

// Duration is a histogram.
type Duration uint8

const (
	LoadTook Duration = iota
	CallerWaited
	FleetWaited
	durations
)

// Durations are the histograms, in seconds.
var Durations = [durations]struct {
	Name
	Help string
}{
	LoadTook: {Name{"load_duration_seconds", "load.duration", "s"}, "How long loads took."},
	CallerWaited: {Name{"wait_duration_seconds", "wait.duration", "s"},
		"How long callers waited for a load, begun by their own call or by another one."},
	FleetWaited: {Name{"fleet_wait_duration_seconds", "fleet_wait.duration", "s"},
		"How long this process waited for a load of another process."},
}

// Buckets are the default buckets of durations, in seconds.
var Buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// DurationOf returns the histogram to which the Took of an event belongs. timed is false if it
// belongs to none.
func DurationOf(e *cacheguard.Event) (d Duration, timed bool) {
	switch e.Kind {
	case cacheguard.EventLoad:
		return LoadTook, true
	case cacheguard.EventWaited:
		return FleetWaited, true
	case cacheguard.EventCoalesced, cacheguard.EventLoaded, cacheguard.EventStale:
		return CallerWaited, e.Took > 0 // a stale value that was available at once is not a wait
	}
	return durations, false
}
