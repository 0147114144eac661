// Package redistest gives tests and benchmarks a real Redis to break. Server is a separate
// redis-server that can be killed, stopped, continued and restarted empty. Proxy is a proxy in
// front of a server that loses, delays, repeats or holds back exactly the command or reply that a
// test names. Cluster and Sentinel are groups of servers that elect a new master when a master is
// lost.
//
// The package knows package testing only through the interface TB, so that a program may also use
// it. NewServer and NewProxy are for programs. Start, Shared and StartProxy are for tests.
//
//	server := redistest.Start(t)
//	proxy := redistest.StartProxy(t, server.Addr())
//	lost := proxy.DropReply(redistest.IsCommand("SET"))
//	ok, err := rdb.SetNX(ctx, "lease", token, ttl).Result() // rdb speaks to proxy.Addr()
//	<-lost.Struck()                                         // the SET was applied, its reply is gone
package redistest
