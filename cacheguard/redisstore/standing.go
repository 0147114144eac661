package redisstore

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// What stands under the name of a lease: the lease, or in its place the record of how the last load
// ended. lease.lua has the format, and reads both; here they are written down, and read by those
// who only look.

// encodeRecord is what a load leaves that leaves no value.
func encodeRecord(load cacheguard.ID, keep, backoff time.Duration, o cacheguard.Outcome) []byte {
	letter, payload := encodeOutcome(o)
	return fmt.Appendf(nil, "!%c%s:%d:%d:%d:%s", letter, load, millis(keep), millis(backoff), o.Failures, payload)
}

// standing is a lease or a record. Of a record kind is a letter; Outcome has no Kind if a later
// version wrote it.
type standing struct {
	load string // hexadecimal, as it stands there

	awaited bool // a lease: somebody waits on the common channel
	inboxes bool // its holder looks for the inboxes of those who wait
	number  int64

	record        bool
	kept, backoff int64 // milliseconds
	outcome       cacheguard.Outcome
}

var (
	leaseForm  = regexp.MustCompile(`^[-+][0-9A-Fa-f]{48}$`)
	recordForm = regexp.MustCompile(`(?s)^!([A-Za-z])([0-9A-Fa-f]+):([0-9]{1,15}):([0-9]{1,15}):([0-9]{1,9}):(.*)$`)
	// A note of who waits: all who have the cache open, or how many these were and the inboxes.
	waitersForm = regexp.MustCompile(`^([0-9]{1,9})((?: [0-9A-Fa-f]+)+)$`)
)

// parseStanding reports false for what is neither: the next asker overwrites it.
func parseStanding(b string) (s standing, ok bool) {
	if leaseForm.MatchString(b) {
		s = standing{load: b[1:33], awaited: b[0] == '+', inboxes: strings.ContainsAny(b[1:33], "ABCDEF")}
		s.number, _ = strconv.ParseInt(b[33:], 10, 64) // digits only, where we have written it
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

// backoffLeft is for how long everybody who asks is given the outcome, when the record has so long
// to go.
func (s standing) backoffLeft(left time.Duration) time.Duration {
	return duration(min(s.backoff-(s.kept-left.Milliseconds()), left.Milliseconds()))
}
