package pgtest

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
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
			if _, parent := stat(child); parent == pid {
				family = append(family, child)
			}
		}
	}
	return family
}

// signal is sent to a process that may have ended.
func signal(pid int, s syscall.Signal) { _ = syscall.Kill(pid, s) }

func still(pid int) bool {
	state, _ := stat(pid)
	return state == 'T' || !aliveIn(state)
}

func alive(pid int) bool {
	state, _ := stat(pid)
	return aliveIn(state)
}

// aliveIn tells the state of one that lives from that of one that is gone, or that waits for
// somebody to see its end.
func aliveIn(state byte) bool { return state != 0 && state != 'Z' && state != 'X' }

// stat reads state and parent from proc_pid_stat(5): they follow the name, which is in brackets and
// may hold anything.
func stat(pid int) (state byte, parent int) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	return fields[0][0], parent
}
