package simulate

import (
	"math"
	"time"
)

// bulk has the requests that are counted slot by slot and not simulated one by one: hits, and
// requests for rare keys. A rare key is usually requested so rarely that hardly ever a second
// request comes during its load. Result.Overlap shows whether this holds.
type bulk struct {
	s    *simulation
	slot int64 // the length of a slot
	now  int   // the number of the present slot

	// These fields have the share of requests that find a fresh value, for the keys that are
	// simulated one by one. A slot's share is the sum of steady and the part of this slot.
	steady float64
	change []float64
	part   []float64

	classes []class // all classes; the first ones have the keys that are simulated one by one
	first   int     // index of the first class with rare keys
	tails   []tail

	stale, scripts int64 // since the slot began: stale answers, and scripts
	tailFresh      int64 // hits of the rare keys
	kills          int
	line, permits  line    // the queues at the origin and for the fleet's budget
	looks          []int64 // how long a command would have waited, at some moments of the slot
	unserved       float64 // share of the last slot's hits that Redis didn't answer in time

	busy, busiest float64 // busy share of the server: in the slot, and the largest so far
	busySum       float64
	slots         int
}

// looksPerSlot is how often per slot the server's queue is sampled for the latency of hits.
const looksPerSlot = 4

func newBulk(s *simulation) *bulk {
	b := &bulk{s: s, slot: slotOf(s.TTL)}
	n := int((s.end + b.slot - 1) / b.slot)
	b.change, b.part = make([]float64, n+2), make([]float64, n+2)
	b.slots = n
	z := newZipf(s.Keys, s.Zipf)
	head := b.head(z)
	s.keys = make([]key, head)
	for i := range s.keys {
		s.keys[i].share = z.share(i + 1)
	}
	b.classes = append(z.classes(1, head), z.classes(head+1, s.Keys)...)
	for b.first < len(b.classes) && b.classes[b.first].from <= head {
		b.first++
	}
	for _, c := range b.classes[b.first:] {
		b.tails = append(b.tails, newTail(s, b.slot, c))
	}
	return b
}

// head returns the number of keys that are simulated one by one. For each of these keys, one
// further request or more is expected during a thousand loads of the key. But head stops before
// more than OneByOne values expire.
func (b *bulk) head(z zipf) (n int) {
	s := b.s
	mean := s.demand.during(0, s.end) / float64(s.end)
	most := s.demand.high / 1e9
	expiries := 0.0
	for n < s.Keys {
		share := z.share(n + 1)
		expiries += float64(s.end) / (float64(s.TTL) + 1/(share*mean))
		if expiries > float64(s.OneByOne) || share*most*float64(s.Load) < 0.001 {
			break
		}
		n++
	}
	return n
}

// fresh adds a share to the requests that find a fresh value, for the time between two moments.
func (b *bulk) fresh(from, to int64, share float64) {
	if b == nil {
		return
	}
	end := int64(b.slots) * b.slot
	from, to = max(from, 0), min(to, end)
	if from >= to {
		return
	}
	first, last := int(from/b.slot), int(to/b.slot)
	part := func(ns int64) float64 { return share * float64(ns) / float64(b.slot) }
	if first == last {
		b.part[first] += part(to - from)
		return
	}
	b.part[first] += part(int64(first+1)*b.slot - from)
	b.part[last] += part(to - int64(last)*b.slot)
	b.change[first+1] += share
	b.change[last] -= share
}

// forget removes all values from Redis.
func (b *bulk) forget() {
	for i := range b.tails {
		b.tails[i].forget()
	}
}

// planSlots plans the beginning of each slot, and the slot's samples of the server's queue.
func (s *simulation) planSlots() {
	b := s.bulk
	var tick func()
	tick = func() {
		if b.now > 0 || s.now > 0 {
			b.close(s.now - b.slot)
			b.now++
		}
		if s.now >= s.end {
			return
		}
		b.open()
		s.plan(s.now+b.slot, tick)
		for range looksPerSlot {
			s.after(int64(s.Float64()*float64(b.slot)), func() {
				b.looks = append(b.looks, s.redis.wait(s.random, s.now))
			})
		}
	}
	s.plan(0, tick)
}

// open begins a slot and draws how many requests come in it: requests for rare keys, and while
// Redis doesn't answer, requests for all keys.
func (b *bulk) open() {
	s := b.s
	b.steady += b.change[b.now]
	requests := s.demand.during(s.now, s.now+b.slot)
	var n counts
	if s.outage.has(s.now) {
		n = b.without(requests)
		for i := range b.tails {
			b.tails[i].pass(s)
		}
	} else {
		n = b.tail(requests)
		if b.unserved > 0 {
			n.add(b.without(requests * b.unserved))
			b.unserved = 0
		}
	}
	wait := b.originWait(&n)
	b.record(n, wait)
	b.carry(requests, n)
}

// counts has the numbers of one slot in bulk.
type counts struct {
	loads          int64 // at the origin
	missed, joined int64 // requests that load, and requests that wait for these loads
	behind         int64 // loads for which no request waits
	fresh, stale   int64 // requests
	errors, lost   int64
	commands       int64 // plain commands, without the look-up of each request
	scripts, fills int64
	published      int64
	patience       int64 // how long a command was waited for before the loads began
	alone          bool
}

func (n *counts) add(m counts) {
	n.loads += m.loads
	n.missed += m.missed
	n.joined += m.joined
	n.errors += m.errors
	n.patience, n.alone = m.patience, m.alone
}

// tail begins a slot for the rare keys, and draws how many requests they get.
func (b *bulk) tail(requests float64) (n counts) {
	s := b.s
	for i := range b.tails {
		b.tails[i].pass(s)
		b.tails[i].draw(s, requests, &n)
	}
	if b.kills > 0 { // when a process ends, the loads that it had begun are lost
		share := min(1, float64(b.kills)*float64(s.Load)/float64(b.slot)/float64(s.Replicas))
		n.lost = s.binomial(n.missed, share)
		b.kills = 0
	}
	return n
}

// without returns the counts for this number of requests while Redis doesn't answer: each process
// loads for itself and stores nothing.
func (b *bulk) without(requests float64) (n counts) {
	s := b.s
	n.alone = true
	if s.FailClosed {
		n.errors = s.poisson(requests)
		return n
	}
	took := float64(s.Load + s.Timeout)
	if s.policy.Lease { // the policy's breaker is open
		took = float64(s.Load)
	} else {
		n.patience = int64(s.Timeout)
	}
	for _, c := range b.classes {
		asked := s.poisson(requests * c.share * float64(c.keys))
		loads := asked
		if s.policy.Share {
			// requests of one process for one key.
			each := requests * c.share / float64(b.slot) / float64(s.replicas.up)
			loads = s.binomial(asked, 1/(1+each*took))
		}
		n.loads += loads
		n.missed += loads
		n.joined += asked - loads
	}
	return n
}

// originWait puts the loads into the queues of the fleet's budget and of the origin, and returns
// how long they wait there.
func (b *bulk) originWait(n *counts) int64 {
	s := b.s
	loads, wait, dropped := float64(n.loads), 0.0, 0.0
	pass := func(l *line, g *gate) {
		room := float64(max(1, g.cap-g.in)) * float64(b.slot) / float64(s.Load)
		most := room * float64(s.LoadTimeout) / float64(b.slot)
		if g.queue > 0 {
			most = min(most, float64(g.queue))
		}
		waits, begun, gone := l.pass(loads, room, float64(b.slot), most)
		loads, dropped = begun, dropped+gone
		wait += waits + float64(g.waiting())*float64(s.Load)/float64(g.cap)
	}
	places := func() float64 { return loads * float64(s.Load) / float64(b.slot) }
	limited := s.budget.cap > 0 && !n.alone
	if limited {
		pass(&b.permits, &s.budget)
		s.budget.carry(places())
	}
	if s.origin.cap > 0 {
		pass(&b.line, &s.origin)
	}
	switch {
	case limited:
		s.origin.carry(min(places(), float64(s.budget.bulk)))
	case s.origin.cap > 0:
		s.origin.carry(places())
	default:
		s.origin.carry(float64(s.poisson(places())))
	}
	s.loads.spread(s.now, b.slot, int64(math.Round(loads)))
	s.loadWait = max(s.loadWait, int64(wait))
	if n.loads > 0 && dropped > 0 {
		share := min(1, dropped/float64(n.loads))
		missed, joined := s.binomial(n.missed, share), s.binomial(n.joined, share)
		n.missed, n.joined, n.errors = n.missed-missed, n.joined-joined, n.errors+missed+joined
	}
	return min(int64(wait), int64(s.LoadTimeout))
}

// samples is the number of requests per slot whose latency is drawn. Each sample stands for an
// equal number of requests.
const samples = 16

// record counts the requests of one slot in bulk, except hits, and draws their latency. close
// counts the hits.
func (b *bulk) record(n counts, wait int64) {
	s := b.s
	s.arrived += n.missed + n.joined + n.stale + n.errors
	good := n.missed - n.lost
	s.result.Loaded += good + n.joined
	s.result.Errors += n.errors + n.lost
	s.result.Lost += n.lost
	if n.alone {
		s.result.Failover += n.errors
	}
	trip := func(service int64) int64 {
		if n.alone {
			return 0
		}
		return int64(s.Costs.RoundTrip) + s.redis.wait(s.random, s.now) + service + s.noise()
	}
	whole := func() int64 {
		d := n.patience + trip(int64(s.Costs.Get)) + wait +
			int64(s.lognormal(float64(s.Load), s.Sigma))
		switch {
		case s.policy.Lease:
			d += trip(int64(s.Costs.Script)) + trip(int64(s.Costs.Fill))
		case s.policy.Lock:
			d += 2*trip(int64(s.Costs.Get)) + trip(int64(s.Costs.Get)) + trip(int64(s.Costs.Script))
		default:
			d += trip(int64(s.Costs.Get))
		}
		return min(d, int64(s.LoadTimeout)+n.patience+int64(time.Second))
	}
	b.each(n.missed, true, whole)
	b.each(n.joined, true, func() int64 {
		d := int64(s.Float64() * float64(whole()))
		if s.policy.Lock && !n.alone {
			d += int64(float64(s.PollLeast) * s.Float64())
		}
		return d
	})
	full := s.origin.queue > 0 &&
		float64(s.origin.queue)*float64(s.Load) < float64(s.origin.cap)*float64(s.LoadTimeout)
	b.each(n.errors, true, func() int64 {
		if s.FailClosed || full { // no request waits
			return n.patience + trip(int64(s.Costs.Get))
		}
		return int64(s.LoadTimeout)
	})
	b.stale += n.stale
}

func (b *bulk) each(n int64, missed bool, latency func() int64) {
	for left, looks := n, min(n, samples); looks > 0; looks-- {
		each := left / looks
		b.s.took(missed, latency(), each)
		left -= each
	}
}

// carry adds the commands of this slot's requests to the work of the simulated Redis.
func (b *bulk) carry(requests float64, n counts) {
	s := b.s
	b.scripts += n.scripts
	scripts, fills := b.scripts, n.fills
	b.scripts = 0
	lookups := int64(requests*min(1, b.steady+b.part[b.now])) + n.fresh + n.missed + n.joined +
		n.stale
	if n.alone && s.outage.has(s.now) {
		lookups, scripts, fills = 0, 0, 0
	}
	plain := lookups + n.commands
	c := s.Costs
	length := float64(b.slot)
	kind := func(count int64, each time.Duration) stream {
		return stream{share: float64(count) * float64(each) / length, service: float64(each)}
	}
	published := c.Fill + c.Message*time.Duration(s.replicas.up)
	kinds := []stream{
		kind(plain, c.Get), kind(scripts, c.Script), kind(fills, c.Fill),
		kind(n.published, published),
	}
	b.busy = 0
	for _, k := range kinds {
		b.busy += k.share
	}
	s.redis.carry(s.now, b.slot, 2*int64(s.Timeout), kinds...)
	s.commands.spread(s.now, b.slot,
		n.missed+n.joined+n.stale+n.commands+scripts+fills+2*n.published)
	if n.alone && s.outage.has(s.now) {
		return
	}
	s.messages.spread(s.now, b.slot, n.published*int64(s.replicas.up))
	b.tailFresh = n.fresh
}

// close counts the hits of the slot that is over.
func (b *bulk) close(began int64) {
	s := b.s
	n := b.tailFresh
	b.tailFresh = 0
	if !s.outage.has(began) {
		n += s.poisson(s.demand.during(began, min(began+b.slot, s.end)) * max(0,
			b.steady+b.part[b.now]))
	}
	stale := b.stale
	b.stale = 0
	s.arrived += n
	// Stale answers were already counted as arrivals when they were drawn.
	all := n + stale
	var late int64
	for i, wait := range b.looks {
		left := len(b.looks) - i
		part := all / int64(left)
		all -= part
		for k, m := part, min(part, samples/looksPerSlot); m > 0; m-- {
			each := k / m
			k -= each
			d := int64(s.Costs.RoundTrip) + wait + int64(s.Costs.Get) + s.noise()
			if wait > int64(s.Timeout) {
				late += each
				continue
			}
			s.took(false, d, each)
		}
	}
	b.looks = b.looks[:0]
	if total := n + stale; late > 0 {
		lateFresh := n * late / total
		lateStale := min(stale, late-lateFresh)
		n, stale = n-lateFresh, stale-lateStale
		s.arrived -= late // they are counted as arrivals when they load for themselves
		b.unserved = float64(late) / max(1, s.demand.during(began, began+b.slot))
	}
	s.result.Fresh += n
	s.result.Stale += stale
	s.commands.spread(began, b.slot, n)
	busy := b.busy + float64(s.served)/float64(b.slot)
	s.served = 0
	b.busiest = max(b.busiest, busy)
	b.busySum += busy
}

// finish counts the stale answers of refreshes that were running at the end.
func (b *bulk) finish() {
	s := b.s
	for i := range s.keys {
		s.countStale(&s.keys[i])
	}
	s.result.Stale += b.stale
	b.each(b.stale, false, func() int64 { return int64(s.Costs.RoundTrip+s.Costs.Get) + s.noise() })
	b.stale = 0
}

func (b *bulk) report(r *Result) {
	r.RedisBusy, r.RedisBusyMean = b.busiest, b.busySum/float64(max(1, b.now))
	r.OneByOne = len(b.s.keys)
	for i := range b.s.keys {
		r.OneByOnePart += b.s.keys[i].share
	}
	if len(b.tails) > 0 {
		r.Overlap = b.tails[0].class.share * b.s.demand.high / 1e9 * float64(b.s.Load)
	}
}
