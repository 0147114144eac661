package simulate

// key is one of those that are simulated one by one.
type key struct {
	share float64 // of all requests

	turn       int64 // counts what makes plans for this key void: its value is replaced or lost
	filled     int64 // when its value was stored
	freshUntil int64 // 0: there is no value
	wasFresh   int64 // how long earlier values were
	staleUntil int64
	staleSince int64 // since when it has been answered with though stale; 0: not now

	loads     int     // begun since the turn began
	holder    *flight // of its lease or lock
	heldUntil int64
	waiters   []*flight         // for a message
	flights   map[int32]*flight // of processes that wait for it, at most one of each
	arriving  bool              // requests are simulated one by one, for they find no value
	chain     int64             // counts what makes the plan for the next one void
}

func (k *key) fresh(now int64) bool { return now < k.freshUntil }
func (k *key) stale(now int64) bool { return now >= k.freshUntil && now < k.staleUntil }

// freshTime is how long the key has had a fresh value so far.
func (k *key) freshTime(now int64) int64 {
	return k.wasFresh + max(0, min(now, k.freshUntil)-k.filled)
}

// held reports whether somebody has the lease or the lock.
func (k *key) held(now int64) bool { return k.holder != nil && now < k.heldUntil }

// flight is one process' question for a key, with the callers that share it.
type flight struct {
	key     *key
	replica int32
	place   int // in the list of its process
	began   int64
	fresh   int64 // the key's freshTime then
	callers int   // that began it; more may have joined
	sends   int64 // nothing is sent before

	missed bool // it found no value at first
	behind bool // it refreshes, and nobody waits for it
	ended  bool // answered, or lost with its process
	alone  bool // it loads without Redis, and stores nothing

	granted int64 // when it got the lease
	loading bool  // it has a place at the origin
	permit  bool  // it has a part of the fleet's budget
	took    int64 // the time of its load
}
