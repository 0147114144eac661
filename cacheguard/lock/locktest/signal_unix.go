//go:build unix

package locktest

import (
	"os"
	"os/exec"
	"syscall"
)

const canSignal = true

// setGroup: should the test process die, its children read the end of their input and end, too. One
// that is stopped can't read: but in a process group of its own it is orphaned then, and the kernel
// hangs it up.
func setGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// stop has a process stand still as if its machine did, soon, and resume ends that.
func stop(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }
