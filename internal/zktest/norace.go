//go:build !race || !unix

package zktest

// SuppressRace does nothing here: without the race detector there is nothing to suppress.
func SuppressRace() {}
