package childproc

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// dieWithParent makes the kernel kill the child when the thread that starts
// it ends.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// pause returns when p stands still: the signal alone is only on its way when
// kill(2) returns.
func pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	timeout := time.After(stopTimeout)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !standsStill(p.Pid) {
		select {
		case <-timeout:
			return fmt.Errorf("childproc: process %d doesn't stop", p.Pid)
		case <-tick.C:
		}
	}
	return nil
}

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// standsStill reports whether the process is stopped, from proc_pid_stat(5):
// the state follows the name, which is in brackets and may hold anything.
func standsStill(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, found := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(") "))
	return found && len(after) > 0 && after[0] == 'T'
}

// lockFile takes the lock of an open file and reports whether it got it. The
// lock belongs to the open file, so a child that inherits the file keeps it
// after its parent's death.
func lockFile(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
