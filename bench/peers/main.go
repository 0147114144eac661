// Command peers is the benchmark with libraries of others besides:
//
//	go run -C bench/peers . handover
//
// It has all commands and options of bench. It is a module of its own, so that what it compares with is no dependency of
// cacheguard. Each library has a file here that registers it, used as its own documentation shows.
package main

import "github.com/cacheguard/cacheguard/bench/internal/program"

func main() {
	program.Main(program.Peers{
		Lockers: []program.Locker{
			{Name: "redsync", Open: openRedsync},
			{Name: "bsm-linear", Open: bsm(linear)},
			{Name: "bsm-exponential", Open: bsm(exponential)},
		},
	})
}
