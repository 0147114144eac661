// Package zktest gives tests a real ZooKeeper to break: Server is a standalone server of one's own
// that can be killed, stopped, continued and restarted, with its data or without, and Proxy is a
// wire in front of it that is cut, goes dead, or loses the reply to exactly the request a test
// names. Ensemble is several servers that elect a leader.
//
// It needs a Java runtime and zookeeper.jar where Debian's libzookeeper-java puts it, or where
// CACHEGUARD_ZOOKEEPER_JARS says: a class path.
//
//	server := zktest.Start(t)
//	proxy, err := zktest.NewProxy(server.Addr())
//	...
//	lost := proxy.LoseReply(zktest.IsOp("create"))
//	path, err := conn.Create(...) // conn speaks to proxy.Addr()
//	<-lost.Struck()               // the node was created, the reply is gone, and the connection with it
package zktest
