// Command peers is the benchmark with libraries of others besides:
//
//	go run -C bench/peers .
//	go run -C bench/peers . cold -contenders cacheguard,rockscache
//	go run -C bench/peers . handover
//
// It has all commands and options of bench. It is a module of its own, so that what it compares
// with is no dependency of cacheguard. Each library has a file here that registers it, used as its
// own documentation shows; below the tables stands what is to be known of each, with its version.
package main

import (
	"github.com/zeromicro/go-zero/core/logx"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/bench/internal/program"
)

var peers = program.Peers{
	Lockers: []program.Locker{
		{Name: "redsync", Open: openRedsync},
		{Name: "bsm-linear", Open: bsm(linear)},
		{Name: "bsm-exponential", Open: bsm(exponential)},
		{Name: "rueidislock", OwnClient: true, Open: openRueidislock},
	},
	Contenders: []contender.Contender{
		goredisContender, gozeroContender, sturdycContender, otterContender, rocksContender, rocksStrongContender,
		redsyncContender, bsmContender, redisioContender, rueidislockContender, rueidisCacheContender,
	},
}

func main() {
	logx.Disable() // go-zero tells of the process every minute, on the standard output that a replica answers on
	program.Main(peers)
}
