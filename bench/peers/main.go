// Command peers is the benchmark with other libraries in addition:
//
//	go run -C bench/peers .
//	go run -C bench/peers . cold -contenders cacheguard,rockscache
//	go run -C bench/peers . handover
//
// It has all commands and options of bench. It is a separate module, so that the other libraries
// are no dependencies of cacheguard. Each library has a file in this folder, which uses it as the
// library's own documentation shows. The variable peers lists them all. Notes about each library,
// with its version, are printed below the tables.
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
		goredisContender, gozeroContender, sturdycContender, otterContender, rocksContender,
		rocksStrongContender,
		redsyncContender, bsmContender, redisioContender, rueidislockContender,
		rueidisCacheContender,
	},
}

func main() {
	// go-zero logs process statistics every minute to the standard output, which a replica needs
	// for its answers.
	logx.Disable()
	program.Main(peers)
}
