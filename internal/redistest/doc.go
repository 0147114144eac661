// Package redistest gives tests and benchmarks a real Redis to break: Server
// is a redis-server of one's own that can be killed, stopped, continued and
// restarted empty, and Proxy is a wire in front of it that loses, delays,
// repeats or holds back exactly the command or reply a test names. Cluster and
// Sentinel are several of them that elect a new master when one is lost.
//
// The package knows package testing only through the interface TB, so that a
// program may use it as well: NewServer and NewProxy for programs, Start and
// Shared for tests.
//
//	server := redistest.Start(t)
//	proxy, err := redistest.NewProxy(server.Addr())
//	...
//	lost := proxy.DropReply(redistest.IsCommand("SET"))
//	ok, err := rdb.SetNX(ctx, "lease", token, ttl).Result() // rdb speaks to proxy.Addr()
//	<-lost.Struck()                                         // the SET was applied, its reply is gone
package redistest
