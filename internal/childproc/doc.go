// Package childproc runs the servers that tests break: Server is a child process on a loopback port
// of its own, in a temporary folder of its own, that can be killed, stopped, continued and
// restarted, and that dies with this process, however that ends. Packages such as redistest say in
// a Program how theirs is started.
//
// Like them it knows package testing only through the interface TB, so that a program may use it as
// well.
package childproc
