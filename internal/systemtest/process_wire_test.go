package systemtest_test

import "time"

// What a test and the processes it starts say to each other, one JSON value a line. Instants are
// wall time, which is the same for all processes of one machine.

// replicaEnv has the replicaConfig of a process that is to be a replica.
const replicaEnv = "CACHEGUARD_TEST_REPLICA"

// replicaConfig has the settings of a replica. Durations of zero are the cache's defaults.
type replicaConfig struct {
	Redis       string
	TTL         time.Duration
	NegativeTTL time.Duration
	ErrorTTL    time.Duration
	LeaseTTL    time.Duration
	LoadTimeout time.Duration

	StaleWhileRevalidate time.Duration
	StaleIfError         time.Duration
	Backoff              time.Duration
}

// The cache that all replicas share.
const (
	processPrefix = "fleet"
	processCache  = "thing"
)

func processValueName(key string) string {
	return processPrefix + ":" + processCache + ":{" + key + "}"
}
func processLeaseName(key string) string { return processValueName(key) + ":lease" }

// replicaValue is the cached value. Each load makes another one.
type replicaValue struct {
	Version int64 // of the origin, as it was when the load began
	Replica int   // process id
	Load    int64 // of the process
}

// replicaOrder is an order to a replica.
type replicaOrder struct {
	ID      int
	Do      replicaOrderKind
	Key     string
	Keys    []string // orderGetMany
	Callers int
	Load    replicaLoad
	Gate    string
}

type replicaOrderKind string

const (
	// Callers of them at once; answered when all have returned.
	orderGet replicaOrderKind = "get"
	// Get, each of the Callers again and again until the Gate opens; summed up then.
	orderKeepOn replicaOrderKind = "keep on"
	// The Keys, by one caller; answered with one answer for each.
	orderGetMany    replicaOrderKind = "get many"
	orderPeek       replicaOrderKind = "peek"       // answered like a get by one caller
	orderInvalidate replicaOrderKind = "invalidate" // and then, if there are Callers, get
	orderOpen       replicaOrderKind = "open"       // the Gate
	// And be seen to have reported all that happened before.
	orderNothing replicaOrderKind = "nothing"
)

// replicaLoad is what a load does, in this order.
type replicaLoad struct {
	// The name in Redis of the version it reads, negative if it is down; "" for none.
	Origin   string
	Gate     string        // it waits until the gate is open; "" for none
	Took     time.Duration // it waits that long
	Deaf     bool          // it waits whatever its context says
	Fail     bool          // it returns errReplicaOrigin
	NotFound bool          // it returns cacheguard.ErrNotFound
}

// replicaReport is a report of a replica about an event. Reports are in the order of the events.
type replicaReport struct {
	Kind    replicaReportKind
	At      time.Time
	Key     string          `json:",omitzero"`
	Order   int             `json:",omitzero"` // reportEntered, reportAnswered, reportDone
	Answers []replicaAnswer `json:",omitzero"` // reportAnswered
	Value   replicaValue    `json:",omitzero"` // reportLoadBegan, reportLoadEnded
	// reportObserved: the event; reportTripped: the command; reportHeard: the message.
	What string        `json:",omitzero"`
	Took time.Duration `json:",omitzero"` // reportTripped, reportStoodStill
	Sum  replicaSum    `json:",omitzero"` // reportSummedUp
	Err  string        `json:",omitzero"`

	Replica int `json:"-"` // whose report it is; the test knows; -1: its own
}

type replicaReportKind string

const (
	reportReady      replicaReportKind = "ready"
	reportEntered    replicaReportKind = "entered"   // all callers of an order are about to call
	reportAnswered   replicaReportKind = "answered"  // all of them have returned
	reportSummedUp   replicaReportKind = "summed up" // what the callers of an orderKeepOn got
	reportDone       replicaReportKind = "done"      // an order without answers is carried out
	reportLoadBegan  replicaReportKind = "load began"
	reportLoadEnded  replicaReportKind = "load ended"
	reportObserved   replicaReportKind = "observed"    // an event of the cache
	reportTripped    replicaReportKind = "tripped"     // a round trip to Redis is over
	reportHeard      replicaReportKind = "heard"       // the cache has acted on a message
	reportStoodStill replicaReportKind = "stood still" // the machine didn't let the process run
	// The process has ended; the test says so itself.
	reportGone replicaReportKind = "gone"
)

// replicaAnswer is the result of one caller.
type replicaAnswer struct {
	Value  replicaValue
	Status string
	Began  time.Time
	Ended  time.Time
	Err    string   `json:",omitzero"`
	Is     []string `json:",omitzero"` // which errors it is, see replicaErrors
	Text   string   `json:",omitzero"` // of a *cacheguard.LoadError
}

// replicaSum is what callers got who called for a long time.
type replicaSum struct {
	Calls int
	// By replicaErrors' name; "remote" for a *cacheguard.LoadError, "other" for what is neither.
	Errors   map[string]int
	Statuses map[string]int // of calls without an error
	Longest  time.Duration
}
