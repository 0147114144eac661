package locktest

import "time"

// SetPatience says how long cases wait for what must happen, until the test that calls it is over.
func SetPatience(t interface{ Cleanup(func()) }, d time.Duration) {
	was := patience
	patience = d
	t.Cleanup(func() { patience = was })
}
