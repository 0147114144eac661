package sqllock

import (
	"testing"
	"time"
)

// In the database a lock never ends before the end that its holder assumes, and only a little
// later, whatever the unit.
func TestLasting(t *testing.T) {
	for _, d := range []Dialect{PostgreSQL, SQLite} {
		s := statementsFor(d, defaultTable)
		for _, lease := range []time.Duration{
			minLease, minLease + 1, 333333333, time.Second, time.Second - 1, time.Hour,
		} {
			lasts := time.Duration(s.lasting(lease)) * s.unit
			if least := lease + lease/200 + s.unit; lasts < least ||
				lasts > lease+lease/50+3*s.unit {
				t.Errorf("%v: a lease of %v lasts %v", d, lease, lasts)
			}
		}
	}
}
