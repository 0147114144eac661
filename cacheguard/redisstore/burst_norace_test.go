//go:build !race

package redisstore_test

const burstKeys = 10_000 // each wanted by one caller, all at once
