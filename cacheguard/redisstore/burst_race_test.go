//go:build race

package redisstore_test

// burstKeys is smaller with the race detector, which needs hundreds of kilobytes for a goroutine.
const burstKeys = 2_000
