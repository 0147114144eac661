package pgtest

import (
	"os"
	"strconv"
	"syscall"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// Every connection has its own server process. It is a child of the first process and has its own
// process group, so a signal to the first process or to its group doesn't reach it.

const (
	stop = syscall.SIGSTOP
	cont = syscall.SIGCONT
)

// children returns the processes that pid has started. They start no further processes.
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

// signal sends a signal to a process that may have ended.
func signal(pid int, s syscall.Signal) { _ = syscall.Kill(pid, s) }

func still(pid int) bool {
	state, _ := childproc.State(pid)
	return state == 'T' || !aliveIn(state)
}

func alive(pid int) bool {
	state, _ := childproc.State(pid)
	return aliveIn(state)
}

// aliveIn reports whether a process with this state is alive. A process that has ended, or that is
// a zombie, is not alive.
func aliveIn(state byte) bool { return state != 0 && state != 'Z' && state != 'X' }
