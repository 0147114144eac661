package lab

import "time"

// Event is one step of a run.
type Event struct {
	At      float64 `json:"at"`      // ms since the run began
	Replica int     `json:"replica"` // from 1; 0: the shop's, or the fault's
	Request int     `json:"request"` // from 1; 0: none
	Kind    string  `json:"kind"`    // a stage.Point, or one of those below
	Note    string  `json:"note,omitempty"`
}

// The kinds of events that are not points of a stage.
const (
	KindRequest     = "request"      // a client asks
	KindFailed      = "failed"       // it gets an error: Note
	KindCrash       = "crash"        // a replica ends
	KindStall       = "stall"        // a replica, or one request, is held up
	KindGoesOn      = "goes on"      // and goes on
	KindRename      = "rename"       // a category is renamed; Note: what the map's version is now
	KindDown        = "redis down"   // nobody reaches Redis
	KindUp          = "redis up"     // and can again
	KindFailover    = "failover"     // another Redis answers: Note
	KindLostVote    = "lost vote"    // a master has forgotten its vote, and one that was away is there: Note
	KindWrongDelete = "wrong delete" // a lock was deleted that was another's
	KindStaleWrite  = "stale write"  // a value was cached that was older than the last rename
)

// Report is what came of a run.
type Report struct {
	Stage string `json:"stage"`
	Fault Fault  `json:"fault"`

	Requests int `json:"requests"`
	Answered int `json:"answered"`
	Failed   int `json:"failed"`
	Died     int `json:"died"`  // with their replica
	Stuck    int `json:"stuck"` // still waiting at the end

	Loads        int `json:"loads"`
	LoadsAtOnce  int `json:"loadsAtOnce"`
	Waited       int `json:"waited"`  // requests that waited for a lock
	Wakeups      int `json:"wakeups"` // of them
	WrongDeletes int `json:"wrongDeletes"`
	StaleWrites  int `json:"staleWrites"`
	StaleAnswers int `json:"staleAnswers"` // to requests that began after the rename
	Refused      int `json:"refused"`      // late values that were not cached
	Holders      int `json:"holders"`      // that had the lock at the same time, at most

	Cached   string  `json:"cached"`   // what a request is told afterwards; empty: nothing
	Origin   string  `json:"origin"`   // what it should be told
	LockLeft float64 `json:"lockLeft"` // ms that a lock of the dead lasts at the end; -1: for ever; 0: there is none

	Waits   Waits   `json:"waits"` // of those who were answered
	Took    float64 `json:"took"`  // ms
	Verdict string  `json:"verdict"`
}

// Waits are how long requests took, in ms.
type Waits struct {
	P50  float64   `json:"p50"`
	P90  float64   `json:"p90"`
	Max  float64   `json:"max"`
	Each []float64 `json:"each"` // sorted
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
