package childproc

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// dieWithParent tells the kernel to kill the child when the thread that starts the child ends.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// pause stops p and returns when p stands still. It has to wait, because the signal may still be on
// its way when kill(2) returns.
func pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if !Until(stopTimeout, time.Millisecond, func() bool { return standsStill(p.Pid) }) {
		return fmt.Errorf("childproc: process %d doesn't stop", p.Pid)
	}
	return nil
}

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// standsStill reports whether the process is stopped.
func standsStill(pid int) bool {
	state, _ := State(pid)
	return state == 'T'
}

// State reads the state of a process and the process id of its parent from proc_pid_stat(5). They
// follow the process' name, which is in brackets and may have any characters. If the process
// doesn't exist, both are 0.
func State(pid int) (state byte, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
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

// lockFile takes the lock of an open file and reports whether it got it. The
// lock belongs to the open file, so a child that inherits the file keeps it
// after its parent's death.
func lockFile(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
