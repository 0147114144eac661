package simulate

import "math"

// tail is a class of rare keys. It has only the number of keys that have a value, because each key
// without a value is requested in a slot with the same probability. Values expire at the ends of
// slots.
type tail struct {
	class
	fresh, stale int64
	ends         []int32 // how many values stop being fresh, by slot; a ring buffer
	gone         []int32 // how many stale values without further requests are dropped
	at           int
	ttl, window  int // TTL and stale window, in slots
	shortest     int // the shortest ttl with jitter
}

func newTail(s *simulation, slot int64, c class) tail {
	t := tail{class: c, ttl: max(1, int(int64(s.TTL)/slot))}
	t.shortest = max(1, int(float64(t.ttl)*(1-s.Jitter)))
	t.ends = make([]int32, t.ttl+1)
	gap := 1 / (c.share * s.demand.at(0))
	keys := int64(c.keys)
	t.fresh = s.binomial(keys, float64(s.TTL)/(float64(s.TTL)+gap))
	left := t.fresh
	for i := 1; i <= t.ttl; i++ { // as if the simulation had already been running for long
		n := left / int64(t.ttl-i+1)
		if rest := left % int64(t.ttl-i+1); s.Float64()*float64(t.ttl-i+1) < float64(rest) {
			n++
		}
		t.ends[i] = int32(n)
		left -= n
	}
	if s.policy.Stale {
		t.window = max(1, int(int64(s.Stale)/slot))
		t.gone = make([]int32, t.window+1)
		// These values expired an exponential time ago and have had no request since then.
		for i := 1; i <= t.window; i++ {
			age := float64(t.window-i) * float64(slot)
			n := min(s.poisson(float64(keys-t.fresh)*float64(slot)/gap*math.Exp(-age/gap)),
				keys-t.fresh-t.stale)
			t.stale += n
			// This share of them will have no request until they are dropped.
			t.gone[i] += int32(s.binomial(n, math.Exp(-float64(i)*float64(slot)/gap)))
		}
	}
	return t
}

// pass begins a slot. Values expire at this moment.
func (t *tail) pass(s *simulation) {
	t.at++
	end := &t.ends[t.at%len(t.ends)]
	expired := min(int64(*end), t.fresh)
	*end = 0
	t.fresh -= expired
	if t.window == 0 {
		return
	}
	t.stale += expired
	gone := &t.gone[t.at%len(t.gone)]
	t.stale -= min(int64(*gone), t.stale)
	*gone = 0
	if expired > 0 {
		later := s.demand.during(s.now, s.now+int64(s.Stale)) * t.share
		t.gone[(t.at+t.window)%len(t.gone)] += int32(s.binomial(expired, math.Exp(-later)))
	}
}

// draw draws the requests of one slot. requests is the expected number of requests of the fleet in
// the slot.
func (t *tail) draw(s *simulation, requests float64, n *counts) {
	each := requests * t.share // expected requests for one key
	asked := -math.Expm1(-each)
	refreshed := s.binomial(t.stale, asked)
	cold := int64(t.keys) - t.fresh - t.stale
	missed := s.binomial(cold, asked)
	further := float64(cold+t.stale) * (each - asked)
	t.stale -= refreshed

	// Of the further requests for the same keys in this slot, some come during the load.
	during := each / float64(s.bulk.slot) * float64(s.Load)
	more := s.poisson(float64(missed) * during)
	moreStale := s.poisson(float64(refreshed) * during)
	further -= float64(missed+refreshed) * during
	n.fresh += s.poisson(max(0, each*float64(t.fresh)+further))
	t.store(s, missed+refreshed)

	n.stale += refreshed + moreStale
	n.behind += refreshed
	loads := missed + refreshed
	switch {
	case !s.policy.Share:
		n.loads += loads + more
		n.missed += missed + more
		n.commands += missed + more // one command for each store
	case !s.policy.Lock && !s.policy.Lease: // another process also loads
		others := s.binomial(more, 1-1/float64(s.replicas.up))
		n.loads += loads + others
		n.missed += missed + others
		n.joined += more - others
		n.commands += missed + others
	case s.policy.Lock:
		n.loads += loads
		n.missed += missed
		n.joined += more
		n.commands += 3 * loads // SET NX, GET, SET
		n.scripts += loads
		polls := 1 + int64(s.Load/(s.PollLeast+s.PollMost))
		n.commands += more * 2 * polls
	default:
		told := s.binomial(more, 1-1/float64(s.replicas.up))
		n.loads += loads
		n.missed += missed
		n.joined += more
		n.scripts += loads + told
		if s.policy.Limit {
			n.scripts += 2 * loads // for taking and returning the permit
		}
		n.published += min(told, loads)
		n.fills += max(0, loads-told)
	}
}

// store gives n keys a value.
func (t *tail) store(s *simulation, n int64) {
	t.fresh += n
	span := t.ttl - t.shortest + 1
	for pieces := min(n, 8); pieces > 0; pieces-- {
		piece := n / pieces
		n -= piece
		in := t.ttl
		if span > 1 {
			in -= s.IntN(span)
		}
		t.ends[(t.at+in)%len(t.ends)] += int32(piece)
	}
}

// forget removes the values from Redis.
func (t *tail) forget() {
	t.fresh, t.stale = 0, 0
	clear(t.ends)
	clear(t.gone)
}
