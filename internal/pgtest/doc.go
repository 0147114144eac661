// Package pgtest gives tests a real PostgreSQL to break: Server is one of one's own, with a fresh
// cluster, that can be killed, stopped, continued and restarted; Proxy is a wire in front of it
// that loses what passes. NewServer and NewProxy are for programs, Start and Shared for tests.
//
// Like childproc, on which it stands, the package knows package testing only through the interface
// TB.
package pgtest
