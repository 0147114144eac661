package lab

import "time"

// Event is one step of a run.
type Event struct {
	At      float64 `json:"at"`      // ms since the run began
	Replica int     `json:"replica"` // from 1; 0: the shop or the fault
	Request int     `json:"request"` // from 1; 0: none
	Kind    string  `json:"kind"`    // a stage.Point, or one of the constants below
	Note    string  `json:"note,omitempty"`
}

// These are the kinds of events that are not points of a stage.
const (
	KindRequest  = "request"    // a client sends a request
	KindFailed   = "failed"     // a request gets an error; Note: the error
	KindCrash    = "crash"      // a replica ends
	KindStall    = "stall"      // a replica, or one request, is stopped
	KindGoesOn   = "goes on"    // it goes on
	KindRename   = "rename"     // a category is renamed; Note: the new version of the map
	KindDown     = "redis down" // Redis can't be reached
	KindUp       = "redis up"   // Redis can be reached again
	KindFailover = "failover"   // another Redis answers; see Note
	// A master has lost its vote, and a master that was away is back; see Note.
	KindLostVote    = "lost vote"
	KindWrongDelete = "wrong delete" // a request deleted the lock of another request
	KindStaleWrite  = "stale write"  // a value from before the last rename was cached
)

// Report is the result of a run.
type Report struct {
	Stage string `json:"stage"`
	Fault Fault  `json:"fault"`

	Requests int `json:"requests"`
	Answered int `json:"answered"`
	Failed   int `json:"failed"`
	Died     int `json:"died"`  // requests that died with their replica
	Stuck    int `json:"stuck"` // requests that still waited at the end

	Loads        int `json:"loads"`
	LoadsAtOnce  int `json:"loadsAtOnce"`
	Waited       int `json:"waited"`  // requests that waited for a lock
	Wakeups      int `json:"wakeups"` // wake-ups of these requests
	WrongDeletes int `json:"wrongDeletes"`
	StaleWrites  int `json:"staleWrites"`
	// Old values in answers to requests that began after the rename.
	StaleAnswers int `json:"staleAnswers"`
	Refused      int `json:"refused"` // late values that were not cached
	Holders      int `json:"holders"` // the most requests that had the lock at the same time

	// The value that one more request gets after the run; empty: an error, no value, or the run had
	// stuck requests.
	Cached string `json:"cached"`
	Origin string `json:"origin"` // the origin's value after the run
	// The remaining ms of a dead holder's lock at the end; -1: for ever; 0: there is no such lock.
	LockLeft float64 `json:"lockLeft"`

	Waits   Waits   `json:"waits"` // the times of the answered requests
	Took    float64 `json:"took"`  // ms
	Verdict string  `json:"verdict"`
}

// Waits are the times that requests took, in ms.
type Waits struct {
	P50  float64   `json:"p50"`
	P90  float64   `json:"p90"`
	Max  float64   `json:"max"`
	Each []float64 `json:"each"` // sorted
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
