//go:build race

package redisstore_test

// burstKeys is fewer here: the race detector needs hundreds of kilobytes for a goroutine.
const burstKeys = 2_000
