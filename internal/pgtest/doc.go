// Package pgtest gives tests a real PostgreSQL to break. Server is a separate PostgreSQL with a
// fresh cluster. It can be killed, stopped, continued and restarted. Proxy stands in front of a
// server and loses traffic. NewServer is for programs. Start, Shared and StartProxy are for
// tests.
//
// Like childproc, which it uses, the package knows package testing only through the interface TB.
package pgtest
