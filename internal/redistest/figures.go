package redistest

import (
	"fmt"
	"time"
)

// Figures has the cost of a fault that a test has measured. Every fault has the same numbers, so
// that they make one table.
type Figures struct {
	Fault   string
	Callers int           // calls that were running, or were made, during the fault
	Errors  int           // calls among them that returned an error
	Loads   int           // loads of the origin
	Longest time.Duration // the longest that a caller waited; 0: not measured
	// From the end of the fault to normal service; 0: at once, or there was no end.
	Normal time.Duration
}

// String returns one line: "figures:" and the numbers in order, between bars.
func (f Figures) String() string {
	ms := func(d time.Duration) string {
		if d == 0 {
			return "-"
		}
		return fmt.Sprint(d.Round(time.Millisecond / 10))
	}
	return fmt.Sprintf(
		"figures: %s | callers %d | errors %d | loads %d | longest wait %s | normal after %s",
		f.Fault, f.Callers, f.Errors, f.Loads, ms(f.Longest), ms(f.Normal))
}

// Count adds one call, which took this long.
func (f *Figures) Count(took time.Duration, err error) {
	f.Callers++
	if err != nil {
		f.Errors++
	}
	f.Longest = max(f.Longest, took)
}
