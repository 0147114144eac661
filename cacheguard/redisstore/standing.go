package redisstore

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Under the name of a lease Redis has either the lease or the record of the last load's end.
// lease.lua describes both formats and reads them. The functions of this file write records, and
// read both formats for code that only inspects them.

// encodeRecord returns the record of a load that left no value.
func encodeRecord(load cacheguard.ID, keep, backoff time.Duration, o cacheguard.Outcome) []byte {
	letter, payload := encodeOutcome(o)
	return fmt.Appendf(nil, "!%c%s:%d:%d:%d:%s", letter, load, millis(keep), millis(backoff),
		o.Failures, payload)
}

// standing is a lease or a record. The Kind of its outcome is 0 if the outcome can't be read, for
// example because a later version wrote the record.
type standing struct {
	load string // id of the load in hexadecimal, as it is stored

	awaited bool // of a lease: a program waits on the common channel
	inboxes bool // of a lease: its holder reads the list of waiting inboxes
	number  int64

	record        bool
	kept, backoff int64 // milliseconds
	outcome       cacheguard.Outcome
}

var (
	leaseForm  = regexp.MustCompile(`^[-+][0-9A-Fa-f]{48}$`)
	recordForm = regexp.MustCompile(
		`(?s)^!([A-Za-z])([0-9A-Fa-f]+):([0-9]{1,15}):([0-9]{1,15}):([0-9]{1,9}):(.*)$`)
	// waitersForm is the list of waiters if not all processes are told: the number of processes
	// that had the cache open, and the inboxes.
	waitersForm = regexp.MustCompile(`^([0-9]{1,9})((?: [0-9A-Fa-f]+)+)$`)
)

// parseStanding reads a lease or a record. If b is neither, it returns false, and the next request
// for a lease overwrites the entry.
func parseStanding(b string) (s standing, ok bool) {
	if leaseForm.MatchString(b) {
		s = standing{
			load: b[1:33], awaited: b[0] == '+', inboxes: strings.ContainsAny(b[1:33], "ABCDEF"),
		}
		// Only digits, if this package has written it.
		s.number, _ = strconv.ParseInt(b[33:], 10, 64)
		return s, true
	}
	m := recordForm.FindStringSubmatch(b)
	if m == nil {
		return s, false
	}
	s = standing{load: m[2], record: true}
	s.kept, _ = strconv.ParseInt(m[3], 10, 64)
	s.backoff, _ = strconv.ParseInt(m[4], 10, 64)
	s.outcome, _ = decodeOutcome(m[1][0], m[6])
	s.outcome.Failures, _ = strconv.Atoi(m[5])
	return s, true
}

// backoffLeft returns how long every request for the lease still gets this outcome. left is the
// remaining time of the record.
func (s standing) backoffLeft(left time.Duration) time.Duration {
	return duration(min(s.backoff-(s.kept-left.Milliseconds()), left.Milliseconds()))
}
