package simulate

// key is a key that is simulated one by one.
type key struct {
	share float64 // share of all requests

	// A counter; it changes when the value is replaced or lost, which cancels plans for this key.
	turn       int64
	filled     int64 // when its value was stored
	freshUntil int64 // until when the value is fresh; 0: there is no value
	wasFresh   int64 // how long earlier values were fresh
	staleUntil int64
	staleSince int64 // since when requests get the stale value; 0: they don't now

	loads     int     // the number of loads that began since the turn began
	holder    *flight // the flight that has the key's lease or lock
	heldUntil int64
	waiters   []*flight         // the flights that wait for a message
	flights   map[int32]*flight // the flights of processes, by process, at most one of each
	arriving  bool              // requests are simulated one by one, because they find no value
	// A counter; it changes when the plan for the next request is replaced.
	chain int64
}

func (k *key) fresh(now int64) bool { return now < k.freshUntil }
func (k *key) stale(now int64) bool { return now >= k.freshUntil && now < k.staleUntil }

// freshTime returns how long the key has had a fresh value so far.
func (k *key) freshTime(now int64) int64 {
	return k.wasFresh + max(0, min(now, k.freshUntil)-k.filled)
}

// held reports whether a flight has the lease or the lock.
func (k *key) held(now int64) bool { return k.holder != nil && now < k.heldUntil }

// flight is one process' request for a key, with the callers that share it.
type flight struct {
	key     *key
	replica int32
	place   int // index in the list of its process
	began   int64
	fresh   int64 // the key's freshTime when the flight began
	callers int   // the callers that began it; more may have joined
	sends   int64 // no command is sent before this time

	missed bool // it found no value at first
	behind bool // it refreshes, and no caller waits for it
	ended  bool // answered, or lost with its process
	alone  bool // it loads without Redis, and stores nothing

	granted int64 // when it got the lease
	loading bool  // it has a place at the origin
	permit  bool  // it has a part of the fleet's budget
	took    int64 // the time of its load
}
