//go:build !race

package redisstore_test

const burstKeys = 10_000 // one caller for each key, all at once
