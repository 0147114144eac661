//go:build !linux

package pgtest

import "syscall"

// There is nobody to send them to.
const stop, cont = syscall.Signal(0), syscall.Signal(0)

// children are not known here: the processes of a server end when they see that the first one is
// gone.
func children(int) []int { return nil }

func signal(int, syscall.Signal) {}

func still(int) bool { return true }

func alive(int) bool { return false }
