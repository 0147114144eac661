//go:build !linux

package pgtest

import "syscall"

// These signals are never sent, because children returns no processes.
const stop, cont = syscall.Signal(0), syscall.Signal(0)

// children returns nil, because on these systems the child processes of a server are not known.
// They end when they notice that the first process has ended.
func children(int) []int { return nil }

func signal(int, syscall.Signal) {}

func still(int) bool { return true }

func alive(int) bool { return false }
