package protocol

const forGood = 200 // more ticks than any scene has

// scenes has the explorer's scenes. Each scene uses the whole Miss and the whole Slot. It limits
// the events that may happen, so that all its worlds can be visited.
//
// Calls come at any moment in any process. Loads, commands, answers and messages take any time. The
// field may says how often each other kind of event may happen in the whole scene. The clock ticks
// up to may.ticks times, and also whenever all that is left to do is to wait.
var scenes = []scene{
	{name: "quiet", processes: 3, together: 2, quiet: true, may: budget{calls: 5}},
	{name: "quiet slots", processes: 2, together: 2, turns: 1, quiet: true, may: budget{calls: 4}},
	{
		name: "large", processes: 2, together: 1, large: true, quickLook: true,
		may: budget{calls: 3, evictions: 1},
	},
	{
		name: "unseen", processes: 3, together: 2, quickLook: true, quiet: true,
		may: budget{calls: 5, unseen: 3},
	},
	{
		name: "unseen, and slots", processes: 2, together: 2, turns: 1, quickLook: true,
		may: budget{calls: 4, unseen: 2, refusals: 1},
	},
	{
		name: "unseen, lost replies", processes: 2, together: 1, quickLook: true,
		may: budget{calls: 3, unseen: 2, lost: 1},
	},
	{
		name: "unseen, leaves", processes: 2, together: 2, quickLook: true,
		may: budget{calls: 3, unseen: 2, leaves: 1, closes: 1}, big: true,
	},
	{
		name: "unseen, stands still", processes: 2, together: 1, quickLook: true,
		may: budget{calls: 2, unseen: 2, ticks: 3}, big: true,
	},
	{
		name: "unseen and changed", processes: 2, together: 1, quickLook: true,
		may: budget{calls: 2, unseen: 2, writes: 1}, writes: []verb{invalidate, claim, mark},
		big: true,
	},
	{
		name: "unseen, lost and changed", processes: 1, together: 2, quickLook: true,
		may: budget{calls: 2, unseen: 2, writes: 1, lost: 1}, writes: []verb{invalidate}, big: true,
	},
	{
		name: "unseen, and stale", processes: 2, together: 1, quickLook: true, start: isStale,
		may: budget{calls: 3, unseen: 2, gone: 1, evictions: 1},
	},
	{
		name: "unseen, and fails", processes: 2, together: 1, quickLook: true, fails: true,
		backoff: 1,
		may:     budget{calls: 4, unseen: 3, gone: 1},
	},
	{
		name: "unseen, unshared", processes: 2, together: 2, quickLook: true, remembered: true,
		start: isPassing,
		may:   budget{calls: 3, unseen: 2, unshared: 1},
	},
	{
		name: "shadow", processes: 2, together: 2, shadow: true, failClosed: true,
		may: budget{calls: 4, lost: 1, evictions: 1}, big: true,
	},
	{
		name: "shadow, and stale", processes: 2, together: 1, quickLook: true, shadow: true,
		start: isStale,
		may:   budget{calls: 2, writes: 1, gone: 1}, writes: []verb{invalidate, mark}, big: true,
	},
	{
		name: "shadow, and fails", processes: 2, together: 1, quickLook: true, shadow: true,
		fails: true, backoff: 1,
		may: budget{calls: 4, refusals: 1}, turns: 1,
	},
	{name: "dies", processes: 3, together: 1, quickLook: true, may: budget{calls: 3, crashes: 1}},
	{
		name: "dies late", processes: 2, together: 1, quickLook: true, valueTicks: 3,
		may: budget{calls: 3, crashes: 1, ticks: 1, lost: 1}, big: true,
	},
	{
		name: "stands still", processes: 2, together: 1, quickLook: true,
		may: budget{calls: 2, ticks: 3}, big: true,
	},
	{
		name: "renews", processes: 2, together: 1, quickLook: true,
		may: budget{calls: 2, ticks: 2, renewals: 1, lost: 1}, big: true,
	},
	{
		name: "renews twice", processes: 1, together: 2, quickLook: true,
		may: budget{calls: 2, ticks: 4, renewals: 3, evictions: 1, lost: 1}, big: true,
	},
	{
		name: "renewed and changed", processes: 1, together: 2, quickLook: true,
		may: budget{calls: 3, ticks: 1, renewals: 1, writes: 1}, writes: []verb{invalidate},
		big: true,
	},
	{
		name: "lost replies", processes: 2, together: 1, quickLook: true,
		may: budget{calls: 3, lost: 2}, big: true,
	},
	{
		name: "fails closed", processes: 2, together: 2, failClosed: true,
		may: budget{calls: 2, lost: 2},
	},
	{
		name: "repeated", processes: 2, together: 1, quickLook: true,
		may: budget{calls: 3, lost: 1, again: 1}, big: true,
	},
	{
		name: "evicted", processes: 3, together: 1, quickLook: true,
		may: budget{calls: 3, evictions: 1},
	},
	{
		name: "messages", processes: 3, together: 1, quickLook: true,
		may: budget{calls: 3, gone: 1, twice: 1},
	},
	{
		name: "unstorable", processes: 3, together: 1, quickLook: true,
		may: budget{calls: 3, unstorable: 1, gone: 1},
	},
	{
		name: "leaves", processes: 2, together: 2, quickLook: true,
		may: budget{calls: 3, leaves: 2, closes: 1}, big: true,
	},
	{
		name: "invalidate", processes: 2, together: 2,
		may: budget{calls: 2, writes: 1}, writes: []verb{invalidate, claim, mark}, big: true,
	},
	{
		name: "joins", processes: 1, together: 2,
		may: budget{calls: 2, writes: 1, lost: 1}, writes: []verb{invalidate, claim, mark},
		big: true,
	},
	{
		name: "marks", processes: 2, together: 1, quickLook: true, may: budget{calls: 2, writes: 1},
		writes: []verb{mark},
	},
	{
		name: "marks, on error", processes: 2, together: 1, quickLook: true, onError: true,
		may: budget{calls: 2, writes: 1}, writes: []verb{mark},
	},
	{
		name: "late fill", processes: 2, together: 1, quickLook: true,
		may: budget{calls: 2, writes: 1, lost: 1}, writes: []verb{invalidate}, big: true,
	},
	{
		name: "late copies", processes: 1, together: 1, quickLook: true,
		may: budget{calls: 1, writes: 1, again: 2}, writes: []verb{invalidate},
	},
	{
		name: "late set", processes: 2, together: 1, quickLook: true,
		may: budget{calls: 1, writes: 2, lost: 1}, writes: []verb{claim, invalidate}, big: true,
	},
	{
		name: "restarts", processes: 1, together: 1, quickLook: true, start: isHeld,
		may: budget{calls: 1, writes: 3, gone: 2}, writes: []verb{claim}, big: true,
	},
	{
		name: "unshared", processes: 2, together: 2, quickLook: true,
		may: budget{calls: 3, unshared: 2, gone: 1},
	},
	{
		name: "unshared, remembered", processes: 2, together: 2, quickLook: true, remembered: true,
		may: budget{calls: 3, unshared: 2},
	},
	{
		name: "unshared and changed", processes: 2, together: 1, quickLook: true, remembered: true,
		may: budget{calls: 2, unshared: 1, writes: 1}, writes: []verb{invalidate, mark}, big: true,
	},
	{
		name: "refused", processes: 1, together: 1, turns: 1, quickLook: true, start: isStale,
		onError: true,
		may:     budget{calls: 2, refusals: 2, writes: 1}, writes: []verb{invalidate, mark},
	},
	{
		name: "overdue", processes: 2, together: 1, quickLook: true, longest: 3, start: isHeld,
		may: budget{calls: 2, gone: 2},
	},
	{
		name: "unshared, and fails", processes: 2, together: 1, turns: 1, quickLook: true,
		start: isPassing, fails: true,
		may: budget{calls: 2, refusals: 1, lost: 1, renewals: 1, ticks: 1, leaves: 1},
	},
	{
		name: "unshared, disturbed", processes: 1, together: 2, turns: 1, start: isPassing,
		may: budget{
			calls: 2, refusals: 1, ticks: 1, renewals: 1, lost: 1, unstorable: 1, leaves: 1,
			evictions: 1, closes: 1,
		}, big: true,
	},
	{
		name: "unshared, overtaken", processes: 1, together: 1, quickLook: true, start: isPassing,
		may:    budget{calls: 1, renewals: 1, ticks: 1, unstorable: 1, leaves: 1, writes: 1},
		writes: []verb{claim},
	},
	{
		name: "unshared, given up", processes: 1, together: 1, quickLook: true, start: isPassing,
		may: budget{
			calls: 1, renewals: 1, ticks: 1, unstorable: 1, leaves: 1, lost: 1, evictions: 1,
		},
	},
	{
		name: "unshared, and slots", processes: 2, together: 1, turns: 1, quickLook: true,
		may: budget{calls: 2, refusals: 1, unshared: 1, leaves: 1},
	},
	{
		name: "unshared, refused", processes: 1, together: 2, turns: 1, start: isPassing,
		may: budget{calls: 2, refusals: 1},
	},
	{
		name: "away, and slots", processes: 1, together: 1, turns: 1,
		may: budget{calls: 2, lost: 1, refusals: 1, writes: 1}, writes: []verb{invalidate},
	},
	{
		name: "overtaken", processes: 1, together: 1, quickLook: true,
		may:    budget{calls: 1, renewals: 1, ticks: 1, unstorable: 1, writes: 1},
		writes: []verb{claim},
	},
	{
		name: "given up", processes: 1, together: 1, quickLook: true,
		may: budget{
			calls: 1, renewals: 1, ticks: 1, unstorable: 1, leaves: 1, lost: 1, evictions: 1,
		},
	},
	{
		name: "updates, overtaken", processes: 1, together: 1, quickLook: true,
		may: budget{updates: 2, renewals: 1, ticks: 1},
	},
	{
		name: "batch, refused", processes: 1, keys: 2, turns: 1, together: 1, batch: true,
		quickLook: true,
		may:       budget{calls: 1, lost: 1, refusals: 2},
	},
	{
		name: "alone", processes: 1, together: 1, quickLook: true, fails: true,
		may: budget{calls: 1, lost: 2, leaves: 1, closes: 1, renewals: 1, ticks: 1, evictions: 1},
	},
	{
		name: "alone, and slots", processes: 1, together: 1, turns: 1, quickLook: true,
		may:    budget{calls: 2, lost: 1, leaves: 1, closes: 1, refusals: 1, writes: 1},
		writes: []verb{invalidate},
	},
	{
		name: "updates, not renewed", processes: 1, together: 1, quickLook: true,
		may: budget{
			updates: 1, lost: 1, renewals: 1, ticks: 2, evictions: 1, unstorable: 1, leaves: 1,
			closes: 1,
		},
	},
	{
		name: "updates fail, disturbed", processes: 1, together: 1, quickLook: true, fails: true,
		may: budget{updates: 1, lost: 1, renewals: 1, ticks: 1, evictions: 1, leaves: 1},
	},
	{
		name: "updates", processes: 2, together: 1, quickLook: true,
		may: budget{calls: 1, updates: 1, unstorable: 1},
	},
	{name: "two updates", processes: 2, together: 1, quickLook: true, may: budget{updates: 2}},
	{
		name: "updates, lost replies", processes: 1, together: 2, quickLook: true,
		may: budget{calls: 2, updates: 1, lost: 1}, big: true,
	},
	{
		name: "updates, renewed", processes: 2, together: 1, quickLook: true,
		may: budget{updates: 2, ticks: 1, renewals: 1, leaves: 1}, big: true,
	},
	{
		name: "updates fail", processes: 2, together: 1, quickLook: true, fails: true,
		may: budget{calls: 1, updates: 1, closes: 1},
	},
	{
		name: "refreshes", processes: 3, together: 1, quickLook: true, start: isStale,
		may: budget{calls: 3, gone: 1},
	},
	{
		name: "refreshes fail", processes: 2, together: 1, quickLook: true, start: isStale,
		fails: true, backoff: 1,
		may: budget{calls: 3, joins: 1, closes: 1},
	},
	{
		name: "refreshes fail without a lease", processes: 1, together: 1, quickLook: true,
		start: isStale, fails: true, backoff: 1,
		may: budget{calls: 1, joins: 1, leaves: 1, ticks: 1, renewals: 1, lost: 1, evictions: 1},
	},
	{
		name: "refreshes, disturbed", processes: 1, together: 1, quickLook: true, start: isStale,
		may: budget{
			calls: 1, joins: 1, leaves: 1, ticks: 1, renewals: 1, lost: 1, unstorable: 1,
			evictions: 1, closes: 1,
		},
	},
	{
		name: "refreshes, overtaken", processes: 1, together: 1, quickLook: true, start: isStale,
		may:    budget{calls: 1, joins: 1, leaves: 1, ticks: 1, renewals: 1, writes: 1},
		writes: []verb{claim},
	},
	{
		name: "refreshes take turns", processes: 1, together: 1, turns: 1, quickLook: true,
		start:  isStale,
		may:    budget{calls: 2, joins: 1, closes: 1, refusals: 1, writes: 1},
		writes: []verb{invalidate},
	},
	{
		name: "refreshes, joined", processes: 2, together: 1, quickLook: true, start: isStale,
		may: budget{calls: 2, joins: 2, lost: 1},
	},
	{
		name: "refreshes late", processes: 2, together: 1, quickLook: true, start: isStale,
		may: budget{calls: 2, writes: 1}, writes: []verb{mark, invalidate},
	},
	{
		name: "fails", processes: 2, together: 1, quickLook: true, fails: true, backoff: 1,
		may: budget{calls: 3, writes: 1}, writes: []verb{invalidate}, big: true,
	},
	{
		name: "fails beside a stale value", processes: 2, together: 1, quickLook: true,
		start: isStale, onError: true, fails: true,
		may: budget{calls: 3, lost: 1, cuts: 1, gone: 1}, big: true,
	},
	{
		name: "fails, no back-off", processes: 3, together: 1, quickLook: true, fails: true,
		may: budget{calls: 3, gone: 1},
	},
	{
		name: "fails, told twice", processes: 2, together: 1, quickLook: true, fails: true,
		may: budget{calls: 4, twice: 1},
	},
	{
		name: "cut", processes: 2, together: 2, quickLook: true,
		may: budget{calls: 2, cuts: 1, writes: 1}, writes: []verb{invalidate}, big: true,
	},
	{
		name: "three", processes: 3, together: 1, quickLook: true,
		may: budget{calls: 2, writes: 1}, writes: []verb{invalidate, claim, mark}, big: true,
	},
	{
		name: "batch", processes: 2, keys: 2, turns: 1, together: 1, batch: true, quickLook: true,
		quiet: true,
		may:   budget{calls: 2},
	},
	{
		name: "batch, changed", processes: 2, keys: 2, turns: 1, together: 1, batch: true,
		quickLook: true,
		may:       budget{calls: 2, writes: 1}, writes: []verb{invalidate}, big: true,
	},
	{
		name: "batch, disturbed", processes: 2, keys: 2, turns: 1, together: 1, batch: true,
		quickLook: true,
		may:       budget{calls: 2, evictions: 1, crashes: 1},
	},
	{
		name: "batch, half answered", processes: 2, keys: 2, turns: 1, together: 1, batch: true,
		quickLook: true,
		may:       budget{calls: 2, lost: 1, refusals: 1}, big: true,
	},
}

// isStale begins with a value that is marked stale.
func isStale(w *world) {
	w.slots[0] = Slot{Frame: frames[1][1][1], Until: at(forGood)}
	w.origin[0], w.since[0] = 2, since{fresh: 2}
	for p := range w.procs {
		w.procs[p].told[0] = w.since[0]
	}
}

// isHeld begins with a lease of a process that is gone.
func isHeld(w *world) {
	w.slots[0].Lease = Lease{Token: id(tokens - 1), Number: tokens - 1, Until: at(3 * leaseTicks)}
}

// isPassing begins with a value that says: each caller loads for itself.
func isPassing(w *world) { w.slots[0] = Slot{Frame: frames[1][marker][0], Until: at(forGood)} }
