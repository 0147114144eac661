// Package childproc runs the servers that tests break. A Server is a child process on its own
// loopback port and in its own temporary folder. It can be killed, stopped, continued and
// restarted. It dies with this process, even if this process is killed. Packages such as redistest
// describe in a Program how their server is started.
//
// Like these packages, childproc knows package testing only through the interface TB, so that a
// program may also use it.
package childproc
