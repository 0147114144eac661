package childproc

import (
	"fmt"
	"os"
	"os/exec"
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

// resume lets p go on and returns when p no longer stands still.
func resume(p *os.Process) error {
	if err := p.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if !Until(stopTimeout, time.Millisecond, func() bool { return !standsStill(p.Pid) }) {
		return fmt.Errorf("childproc: process %d doesn't go on", p.Pid)
	}
	return nil
}

// standsStill reports whether the process is stopped.
func standsStill(pid int) bool {
	state, _ := State(pid)
	return state == 'T'
}

// lockFile takes the lock of an open file and reports whether it got it. The
// lock belongs to the open file, so a child that inherits the file keeps it
// after its parent's death.
func lockFile(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
