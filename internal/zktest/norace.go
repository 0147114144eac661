//go:build !race || !unix

package zktest

// SuppressRace does nothing, because without the race detector there is nothing to suppress.
func SuppressRace() {}
