package redisstore_test

import (
	"runtime"
	"strings"
)

// ours returns the stacks of the goroutines that run the library's code, without those of tests,
// proxies and clients.
func ours() (stacks []string) {
	all := make([]byte, 1<<20)
	for {
		n := runtime.Stack(all, true)
		if n < len(all) {
			all = all[:n]
			break
		}
		all = make([]byte, 2*len(all))
	}
	const module = "github.com/cacheguard/cacheguard/"
	for stack := range strings.SplitSeq(string(all), "\n\n") {
		for _, pkg := range []string{"cacheguard.", "cacheguard/redisstore.", "internal/flight."} {
			if strings.Contains(stack, "\n"+module+pkg) {
				stacks = append(stacks, stack)
				break
			}
		}
	}
	return stacks
}
