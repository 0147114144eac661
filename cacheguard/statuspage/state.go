package statuspage

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/eventcount"
	"github.com/cacheguard/cacheguard/internal/report"
)

// state has the data of the page. In its JSON, durations are integers of nanoseconds, in members
// whose names end in _ns.
type state struct {
	Now     time.Time     `json:"now"`
	Since   time.Time     `json:"since"` // beginning of all counts
	Caches  []cacheState  `json:"caches"`
	Slowest []slowLoad    `json:"slowest"` // slow loads of the last minutes
	Trouble []trouble     `json:"trouble"` // the latest first
	Up      time.Duration `json:"up_ns"`
}

// cacheState is the state of one cache, or of several caches with the same name.
type cacheState struct {
	Name      string `json:"name"`
	Instances int    `json:"instances"`
	// On, off, shadow or closed; if instances differ, the mode of one that isn't on.
	Mode      string `json:"mode"`
	Listening bool   `json:"listening"` // messages of the store arrive in all instances
	// The uses of the store that have failed and not succeeded since.
	Troubles []failing `json:"troubles"`
	Answers  answered  `json:"answers"`
	// The hits' share of the answers, from 0 to 1; 0 if there were no answers.
	HitRatio float64 `json:"hit_ratio"`

	LoadsRunning int    `json:"loads_running"`
	LoadsQueued  int    `json:"loads_queued"`
	Leases       int    `json:"leases"`
	Flights      int    `json:"flights"`
	Callers      int    `json:"callers"`
	LocalEntries int    `json:"local_entries"`
	Changes      uint64 `json:"changes"` // made by this process
	Unsent       int    `json:"unsent"`
	BreakersOpen int    `json:"breakers_open"`
	Breakers     int    `json:"breakers"`
	Loads        []load `json:"loads"` // running loads, the oldest first

	Compared uint64     `json:"compared"`
	Wrong    uint64     `json:"wrong"`
	WrongAt  *time.Time `json:"wrong_at,omitempty"` // when an answer was last found to be wrong
	Nines    any        `json:"nines"`              // a float64; nil if nothing was compared
	Hottest  []hotKey   `json:"hottest"`
}

// failing is a use of the store that has failed and has not succeeded since.
type failing struct {
	Use    string        `json:"use"`
	Since  time.Time     `json:"since"`
	Last   time.Time     `json:"last"`        // when the use last failed
	Ago    time.Duration `json:"last_ago_ns"` // how long ago that was
	Server string        `json:"server,omitempty"`
	Why    string        `json:"why"`
	// The error's text, which names a missing right, for instance.
	Text  string `json:"error"`
	Works bool   `json:"works"` // messages arrive again, and did not a moment ago
}

// quiet is the time after which a trouble is no longer shown as a present one, if nothing has tried
// that use of the store again.
const quiet = time.Minute

// Old reports whether nothing has tried this use of the store lately. Then nobody knows whether it
// would still fail.
func (f failing) Old() bool { return f.Ago >= quiet }

// Said returns the server, the cause and what the error says besides, such as the missing right.
func (f failing) Said() string {
	switch {
	case strings.Contains(f.Text, f.Why):
		return f.Text
	case f.Server != "":
		return f.Server + ": " + f.Why
	}
	return f.Why
}

// add adds a trouble of one instance. Instances whose troubles have one cause share a line.
func (c *cacheState) add(t cacheguard.StoreTrouble, listening bool, now time.Time) {
	one := failing{
		Use: t.Use, Since: t.Since.UTC(), Last: t.Last.UTC(), Ago: max(now.Sub(t.Last), 0),
		Server: t.Server, Why: cmp.Or(t.Cause, cut(t.Text)), Text: cut(t.Text),
		Works: t.Use == "messages" && listening,
	}
	for i := range c.Troubles {
		if o := &c.Troubles[i]; o.Use == one.Use && o.Server == one.Server && o.Why == one.Why {
			o.Works = o.Works && one.Works
			if one.Since.Before(o.Since) {
				o.Since = one.Since
			}
			if one.Last.After(o.Last) {
				o.Last, o.Ago = one.Last, one.Ago
			}
			return
		}
	}
	c.Troubles = append(c.Troubles, one)
}

// answered counts the calls by their result.
type answered struct {
	Hits     uint64 `json:"hits"`
	Negative uint64 `json:"negative_hits"` // "does not exist"
	// Hits of the local tier of both kinds, not counted above.
	Local      uint64 `json:"local_hits"`
	Stale      uint64 `json:"stale"`
	Coalesced  uint64 `json:"coalesced"`
	Loaded     uint64 `json:"loaded"`
	Failed     uint64 `json:"failed"`
	Overloaded uint64 `json:"overloaded"`
}

// load is a running load.
type load struct {
	Key     string        `json:"key"`
	More    int           `json:"more,omitempty"` // number of other keys that the same load loads
	Age     time.Duration `json:"age_ns"`
	Callers int           `json:"callers"`
	// The load has a lease; without a lease its result is not stored.
	Leased bool `json:"leased"`
	// The load is for an audit: no caller waits for it, and its result is not stored.
	Audit bool `json:"audit"`
}

// mostLoads is the largest number of loads that are shown for each cache.
const mostLoads = 20

// state reads all caches.
func (p *Page) state(now time.Time) state {
	s := state{
		Now: now.UTC(), Since: p.started.UTC(), Up: now.Sub(p.started), Slowest: p.slow.top(now),
		Trouble: p.trouble.last(),
	}
	byName := map[string]*cacheState{}
	p.caches.Each(func(c *eventcount.Cache[*noted], stats cacheguard.Stats, _ bool) {
		byName[c.Name] = stateOf(c, stats)
	})
	p.views.Range(func(v, _ any) bool {
		if c := byName[v.(*view).Cache]; c != nil { // if c is nil, the cache was opened only now
			v.(*view).addTo(c, now)
		}
		return true
	})
	for _, c := range byName {
		if c.Instances == 0 {
			c.Mode, c.Listening = "closed", false
		}
		c.finish()
		s.Caches = append(s.Caches, *c)
	}
	slices.SortFunc(s.Caches, func(a, b cacheState) int { return cmp.Compare(a.Name, b.Name) })
	p.hide(&s)
	return s
}

// stateOf returns the state of the caches of one name, as far as it is in their counts, in the sum
// of their stats and in what the page has noted.
func stateOf(c *eventcount.Cache[*noted], s cacheguard.Stats) *cacheState {
	sum := func(numbers ...eventcount.Number) (sum uint64) {
		for _, n := range numbers {
			sum += c.Read(n, cacheguard.Stats{})
		}
		return sum
	}
	return &cacheState{
		Name: c.Name, Listening: true,
		Answers: answered{
			Hits:     sum(eventcount.Hit, eventcount.LocalHit),
			Negative: sum(eventcount.NegativeHit, eventcount.LocalNegativeHit),
			Local:    s.LocalHits + s.LocalNegativeHits,
			Stale:    sum(eventcount.Stale), Coalesced: sum(eventcount.Coalesced),
			Loaded: sum(eventcount.Loaded), Failed: sum(eventcount.Failed),
			Overloaded: sum(eventcount.Overloaded),
		},
		LoadsRunning: s.LoadsRunning, LoadsQueued: s.LoadsQueued, Flights: s.Flights,
		Callers: s.Callers, LocalEntries: s.LocalEntries, Changes: s.Changes, Unsent: s.Unsent,
		Compared: s.Compared, Wrong: s.Wrong, WrongAt: c.More.wrongAt.Load(),
		Hottest: c.More.hot.top(),
	}
}

// addTo adds what one open cache is doing now.
func (v *view) addTo(c *cacheState, now time.Time) {
	if c.Instances++; c.Instances == 1 || v.Mode() != cacheguard.ModeOn {
		c.Mode = v.Mode().String()
	}
	listening := v.Listening()
	c.Listening = c.Listening && listening
	// Not the sum: these are numbers of the store, which instances usually share.
	s := v.Stats()
	c.BreakersOpen, c.Breakers = s.BreakersOpen, s.Breakers
	for _, t := range v.Troubles() {
		c.add(t, listening, now)
	}
	for _, l := range v.Loads(mostLoads) {
		if l.Leased {
			c.Leases += 1 + l.More
		}
		c.Loads = append(c.Loads, load{
			Key: l.Key, More: l.More, Age: now.Sub(l.Since), Callers: l.Callers, Leased: l.Leased,
			Audit: l.Audit,
		})
	}
}

func (c *cacheState) finish() {
	a := c.Answers
	hits := a.Hits + a.Negative + a.Local
	if all := hits + a.Stale + a.Coalesced + a.Loaded + a.Failed; all > 0 {
		c.HitRatio = float64(hits) / float64(all)
	}
	if c.Compared > 0 {
		c.Nines = cacheguard.Stats{Compared: c.Compared, Wrong: c.Wrong}.Nines()
	}
	slices.SortStableFunc(c.Loads, func(a, b load) int { return cmp.Compare(b.Age, a.Age) })
	c.Loads = c.Loads[:min(len(c.Loads), mostLoads)]
}

// hide replaces keys by their hashes, unless Options.Keys is set.
func (p *Page) hide(s *state) {
	show := func(key *string) {
		switch {
		case *key == "":
		case p.opts.Keys:
			*key = strconv.Quote(cut(*key))
		default:
			*key = report.HashKey(*key)
		}
	}
	for i := range s.Slowest {
		show(&s.Slowest[i].Key)
	}
	for i := range s.Trouble {
		for n := range s.Trouble[i].Keys {
			show(&s.Trouble[i].Keys[n])
		}
	}
	for i := range s.Caches {
		for n := range s.Caches[i].Loads {
			show(&s.Caches[i].Loads[n].Key)
		}
		for n := range s.Caches[i].Hottest {
			show(&s.Caches[i].Hottest[n].Key)
		}
	}
}
