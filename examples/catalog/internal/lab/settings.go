package lab

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

// Fault is the fault that happens in a run.
type Fault string

// These are the faults.
const (
	NoFault Fault = "none"
	Crash   Fault = "crash" // the first holder dies while it loads
	// The first holder dies between the two commands that make its lock. If one command makes the
	// lock, the holder dies as soon as it has the lock.
	CrashBetween Fault = "crash-between"
	// The first holder's load takes longer than the lock lasts, and a category is renamed in this
	// time.
	SlowLoad Fault = "slow-load"
	// The first holder is stopped when it gives the lock back, and a category is renamed in this
	// time.
	SlowUnlock Fault = "slow-unlock"
	// The first holder's process is stopped while it loads, and a category is renamed in this time.
	Stall  Fault = "stall"
	Rename Fault = "rename" // a category is renamed while the first holder loads
	// A category is renamed when the map is cached, and the caches aren't told.
	SilentRename Fault = "silent-rename"
	Clock        Fault = "clock"      // the second replica's clock is wrong
	RedisDown    Fault = "redis-down" // Redis can't be reached for a while
	// Redis fails over to an empty server while the first holder loads, and a category is renamed
	// in this time.
	Failover    Fault = "failover"
	SlowOrigin  Fault = "slow-origin"  // each load takes ten times as long
	OriginFails Fault = "origin-fails" // each load fails
	Unknown     Fault = "unknown"      // requests ask for a value that doesn't exist
)

// FaultInfo is a fault with its description.
type FaultInfo struct {
	Name Fault
	Text string
}

// Faults returns all faults, in the order in which they are offered.
func Faults() []FaultInfo {
	return []FaultInfo{
		{NoFault, "nothing goes wrong"},
		{Crash, "the holder dies while it loads"},
		{CrashBetween, "the holder dies just when it gets the lock"},
		{
			SlowLoad,
			"the load takes longer than the lock lasts, and a category is renamed meanwhile",
		},
		{
			SlowUnlock,
			"the holder is held up when it gives the lock back, and a category is renamed meanwhile",
		},
		{
			Stall,
			"the holder's process stands still for longer than the lock lasts, and a category is renamed meanwhile",
		},
		{Rename, "a category is renamed while the map is loaded"},
		{SilentRename, "a category is renamed in the database, and nobody says so"},
		{Clock, "the clock of replica 2 is wrong"},
		{RedisDown, "Redis can't be reached for a while"},
		{
			Failover,
			"Redis fails over to a server that lacks the lock, and a category is renamed meanwhile",
		},
		{SlowOrigin, "the database is ten times as slow"},
		{OriginFails, "the database fails"},
		{Unknown, "what is asked for does not exist"},
	}
}

// Settings are the settings of one run. Query turns them into the query of a URL, and Parse reads
// them from it, so that a link repeats a run.
type Settings struct {
	Stage    string
	Replicas int           // 1 to 8
	Requests int           // of all replicas together; at least Replicas, at most 200
	Fault    Fault         //
	LockTTL  time.Duration // the time that a lock lasts; 1 s to 30 s
	Load     time.Duration // the time that a load takes; up to 2 s
	// For the fault Clock: the time by which the clock of replica 2 is ahead; -24 h to 24 h.
	Clock time.Duration
}

// Defaults returns the settings of a run for which no settings were chosen.
func Defaults() Settings {
	return Settings{
		Stage: "cacheguard", Replicas: 3, Requests: 12, Fault: NoFault, LockTTL: time.Second,
		Load: 200 * time.Millisecond, Clock: time.Hour,
	}
}

// These are the limits of the settings.
const (
	MostReplicas = 8
	MostRequests = 200
	LeastLockTTL = time.Second
	MostLockTTL  = 30 * time.Second
	MostLoad     = 2 * time.Second
	MostClock    = 24 * time.Hour // ahead or behind
)

// Validate returns an error that names all invalid settings.
func (s Settings) Validate() error {
	var errs []error
	if !slices.ContainsFunc(stage.All(), func(st stage.Stage) bool { return st.Name == s.Stage }) {
		errs = append(errs, fmt.Errorf("there is no stage %q", s.Stage))
	}
	if !slices.ContainsFunc(Faults(), func(f FaultInfo) bool { return f.Name == s.Fault }) {
		errs = append(errs, fmt.Errorf("there is no fault %q", s.Fault))
	}
	if s.Replicas < 1 || s.Replicas > MostReplicas {
		errs = append(errs, fmt.Errorf("%d replicas: want 1 to %d", s.Replicas, MostReplicas))
	}
	if s.Requests < s.Replicas || s.Requests > MostRequests {
		errs = append(errs,
			fmt.Errorf("%d requests: want at least one for each replica, and %d at most",
				s.Requests, MostRequests))
	}
	if s.LockTTL < LeastLockTTL || s.LockTTL > MostLockTTL {
		errs = append(errs,
			fmt.Errorf("a lock of %v: want %v to %v", s.LockTTL, LeastLockTTL, MostLockTTL))
	}
	if s.Load < 0 || s.Load > MostLoad {
		errs = append(errs, fmt.Errorf("a load of %v: want 0 to %v", s.Load, MostLoad))
	}
	if s.Clock < -MostClock || s.Clock > MostClock {
		errs = append(errs,
			fmt.Errorf("a clock that is %v ahead: want %s to %s", s.Clock, short(-MostClock),
				short(MostClock)))
	}
	return errors.Join(errs...)
}

// Query returns the settings as the query of a URL.
func (s Settings) Query() url.Values {
	return url.Values{
		"stage": {s.Stage}, "replicas": {strconv.Itoa(s.Replicas)},
		"requests": {strconv.Itoa(s.Requests)},
		"fault":    {string(s.Fault)}, "ttl": {s.LockTTL.String()}, "load": {s.Load.String()},
		"clock": {short(s.Clock)},
	}
}

// short formats a duration as people write it: 1h, not 1h0m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Parse reads the settings from the query of a URL. Missing settings are as in Defaults.
func Parse(q url.Values) (Settings, error) {
	s := Defaults()
	var errs []error
	number := func(name string, to *int) {
		if text := q.Get(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				err = fmt.Errorf("%s=%q: want a number", name, text)
			}
			*to, errs = n, append(errs, err)
		}
	}
	duration := func(name string, to *time.Duration) {
		if text := q.Get(name); text != "" {
			d, err := time.ParseDuration(text)
			if err != nil {
				err = fmt.Errorf("%s=%q: want a duration, as 1s or 200ms", name, text)
			}
			*to, errs = d, append(errs, err)
		}
	}
	if text := q.Get("stage"); text != "" {
		s.Stage = text
	}
	if text := q.Get("fault"); text != "" {
		s.Fault = Fault(text)
	}
	number("replicas", &s.Replicas)
	number("requests", &s.Requests)
	duration("ttl", &s.LockTTL)
	duration("load", &s.Load)
	duration("clock", &s.Clock)
	if err := errors.Join(errs...); err != nil {
		return s, err
	}
	return s, s.Validate()
}
