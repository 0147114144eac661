package pgtest

import (
	"os"
	"strconv"
	"syscall"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// Every connection is served by a process of its own, a child of the first one and in a group of
// its own, so a signal to the first one, or to its group, doesn't reach it.

const (
	stop = syscall.SIGSTOP
	cont = syscall.SIGCONT
)

// children are the processes that pid has started. They start none themselves.
func children(pid int) []int {
	if pid == 0 {
		return nil
	}
	var family []int
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		if child, err := strconv.Atoi(entry.Name()); err == nil {
			if _, parent := childproc.State(child); parent == pid {
				family = append(family, child)
			}
		}
	}
	return family
}

// signal is sent to a process that may have ended.
func signal(pid int, s syscall.Signal) { _ = syscall.Kill(pid, s) }

func still(pid int) bool {
	state, _ := childproc.State(pid)
	return state == 'T' || !aliveIn(state)
}

func alive(pid int) bool {
	state, _ := childproc.State(pid)
	return aliveIn(state)
}

// aliveIn tells the state of one that lives from that of one that is gone, or that waits for
// somebody to see its end.
func aliveIn(state byte) bool { return state != 0 && state != 'Z' && state != 'X' }
