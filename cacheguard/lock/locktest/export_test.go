package locktest

import "time"

// SetPatience sets the time limit of cases for events that must happen. It applies until the test
// that calls it is over.
func SetPatience(t interface{ Cleanup(func()) }, d time.Duration) {
	was := patience
	patience = d
	t.Cleanup(func() { patience = was })
}
