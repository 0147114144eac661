//go:build unix

package locktest

import (
	"os"
	"os/exec"
	"syscall"
)

const canSignal = true

// setGroup puts a child into its own process group. If the test process dies, its children read the
// end of their input and end, too. A stopped child can't read. But then its process group is
// orphaned, and the kernel ends it with SIGHUP.
func setGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// stop stops a process as if its machine were stopped. The process may run for a short time after
// stop has returned. resume lets the process go on.
func stop(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }
