// Package zktest gives tests a real ZooKeeper to break. Server is a separate standalone server that
// can be killed, stopped, continued and restarted, with or without its data. Proxy is a proxy in
// front of a server that can cut connections, swallow traffic, or lose the reply to exactly the
// request that a test names. Ensemble is a group of servers that elect a leader.
//
// It needs a Java runtime, and zookeeper.jar and slf4j-simple.jar in /usr/share/java, the folder of
// Debian's libzookeeper-java. If the jars are at another place, set CACHEGUARD_ZOOKEEPER_JARS to a
// class path.
//
//	server := zktest.Start(t)
//	proxy := zktest.StartProxy(t, server.Addr())
//	lost := proxy.LoseReply(zktest.IsOp("create"), zktest.Hangup)
//	path, err := conn.Create(...) // conn speaks to proxy.Addr()
//	<-lost.Struck()               // the node was created, the reply is gone, and the connection with it
package zktest
