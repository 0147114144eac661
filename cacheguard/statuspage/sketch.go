package statuspage

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/eventcount"
	"github.com/cacheguard/cacheguard/internal/report"
)

// hottest estimates the hits of the most frequent keys with a fixed number of counters. A new key
// takes over the counter of the key with the fewest hits, together with its count. See Metwally,
// Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, ICDT
// 2005. All counts are halved from time to time, so that keys that are no longer hit often make
// room.
type hottest struct {
	mu    sync.Mutex // guards the fields below
	count map[string]uint64
	all   uint64
}

const (
	counters  = 64
	halvedAt  = 4096 // hits
	mostHot   = 8
	mostSlow  = 12
	mostNoted = 24
	mostKeys  = 5 // of one problem
)

// hit counts one hit of a key.
func (h *hottest) hit(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count == nil {
		h.count = make(map[string]uint64, counters)
	}
	h.all++
	if _, known := h.count[key]; !known && len(h.count) >= counters {
		least, fewest := "", h.all // no key has more hits than all
		for other, n := range h.count {
			if n <= fewest {
				least, fewest = other, n
			}
		}
		h.count[key] = fewest
		delete(h.count, least)
	}
	h.count[key]++
	if h.all >= halvedAt {
		h.all /= 2
		for other := range h.count {
			h.count[other] /= 2
		}
	}
}

// hotKey is a key and its share of the hits, from 0 to 1.
type hotKey struct {
	Key   string  `json:"key"`
	Share float64 `json:"share"`
}

// top returns the keys that are hit most, the most frequent first.
func (h *hottest) top() (all []hotKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, n := range h.count {
		all = append(all, hotKey{key, min(float64(n)/float64(max(h.all, 1)), 1)})
	}
	slices.SortFunc(all, func(a, b hotKey) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(len(all), mostHot)]
}

// slowLoad is a load that took long.
type slowLoad struct {
	Cache  string        `json:"cache"`
	Key    string        `json:"key"`
	More   int           `json:"more,omitempty"` // number of other keys that the same load loaded
	Took   time.Duration `json:"took_ns"`
	At     time.Time     `json:"at"`
	Last   time.Time     `json:"last"` // end of the key's last load that took at least half of Took
	Failed bool          `json:"failed"`
}

// slowest has the loads that took longest in the present window and in the one before it, one for
// each key.
type slowest struct {
	mu      sync.Mutex // guards the fields below
	began   time.Time
	now     []slowLoad
	earlier []slowLoad
}

// window is the shortest time for which a slow load is shown, unless slower ones take its place.
const window = 5 * time.Minute

func (s *slowest) took(l slowLoad) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(l.At)
	l.Last = l.At
	if i := slices.IndexFunc(s.now, func(o slowLoad) bool {
		return o.Cache == l.Cache && o.Key == l.Key
	}); i >= 0 {
		if l.Took <= s.now[i].Took {
			if 2*l.Took >= s.now[i].Took {
				s.now[i].Last = l.At
			}
			return
		}
		s.now = slices.Delete(s.now, i, i+1)
	} else if len(s.now) == mostSlow && l.Took <= s.now[mostSlow-1].Took {
		return
	}
	s.now = append(s.now, l)
	sortSlow(s.now)
	s.now = s.now[:min(len(s.now), mostSlow)]
}

func sortSlow(all []slowLoad) {
	slices.SortStableFunc(all, func(a, b slowLoad) int { return cmp.Compare(b.Took, a.Took) })
}

// turn begins a new window if the present one is over.
func (s *slowest) turn(now time.Time) {
	if now.Sub(s.began) < window {
		return
	}
	s.earlier, s.now = s.now, nil
	if now.Sub(s.began) >= 2*window {
		s.earlier = nil
	}
	s.began = now
}

// top returns the slow loads, the slowest first.
func (s *slowest) top(now time.Time) []slowLoad {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now)
	all := slices.Concat(s.now, s.earlier)
	sortSlow(all)
	seen := map[[2]string]bool{}
	all = slices.DeleteFunc(all, func(l slowLoad) bool {
		key := [2]string{l.Cache, l.Key}
		twice := seen[key]
		seen[key] = true
		return twice
	})
	return all[:min(len(all), mostSlow)]
}

// trouble is a problem that the page shows.
type trouble struct {
	At    time.Time `json:"at"`    // when it was seen last
	Since time.Time `json:"since"` // when it was seen first
	Times int       `json:"times"`
	Cache string    `json:"cache"`
	Keys  []string  `json:"keys,omitempty"` // the last keys with this problem, the latest first
	What  string    `json:"what"`
	Why   string    `json:"why,omitempty"`
}

// troubles has the latest problems.
type troubles struct {
	mu  sync.Mutex // guards all
	all []trouble  // the latest is last
}

// add records a problem. If the same problem is already recorded, add increases its count.
func (t *troubles) add(one trouble) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one.Times = 1
	i := slices.IndexFunc(t.all, func(o trouble) bool {
		return o.Cache == one.Cache && o.What == one.What && o.Why == one.Why
	})
	switch {
	case i >= 0:
		one.Times, one.Since = t.all[i].Times+1, t.all[i].Since
		for _, key := range t.all[i].Keys {
			if len(one.Keys) < mostKeys && !slices.Contains(one.Keys, key) {
				one.Keys = append(one.Keys, key)
			}
		}
		t.all = slices.Delete(t.all, i, i+1)
	case len(t.all) == mostNoted:
		t.all = slices.Delete(t.all, 0, 1)
	}
	t.all = append(t.all, one)
}

// last returns the problems, the latest first. The page may change them.
func (t *troubles) last() []trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Clone(t.all)
	for i := range all {
		all[i].Keys = slices.Clone(all[i].Keys)
	}
	slices.Reverse(all)
	return all
}

// wrong returns a few words about an event if the event is a problem. For any other event it
// returns an empty string. A stale value in place of an error is not listed: the page lists the
// causes, which are loads and steps of the store that failed in this process.
func (p *Page) wrong(e cacheguard.Event) string {
	problem := eventcount.Problem(&e)
	switch {
	case problem && e.Kind == cacheguard.EventLoad:
		return "load failed"
	case problem && e.Kind == cacheguard.EventCompared:
		return "wrong answer"
	case problem:
		return e.Kind.String()
	case e.Kind == cacheguard.EventLoad && e.Err == nil && p.opts.SlowLoad > 0 &&
		e.Took >= p.opts.SlowLoad:
		return "slow load"
	}
	return ""
}

// why returns the cause of a problem, if the event has it. For an error of the store it returns
// only the server and the cause, because with the rest of the text one fault would be listed as
// several problems.
func why(e cacheguard.Event) string {
	if server, cause := report.Where(e.Err); cause != "" && e.Kind != cacheguard.EventLoad {
		return strings.TrimPrefix(server+": "+cause, ": ")
	}
	switch {
	case e.Err != nil:
		return cut(e.Err.Error())
	case e.Kind == cacheguard.EventCompared:
		return e.Differs.String()
	}
	return ""
}

// keys returns the key of an event, if the event has a key.
func keys(e cacheguard.Event) []string {
	if e.Key == "" {
		return nil
	}
	return []string{e.Key}
}

// cut returns the beginning of a text.
func cut(text string) string {
	const most = 300
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
