//go:build unix

package program

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup puts a child into its own process group. If the parent dies, a stopped child can't read
// the end of its input. But then its process group is orphaned, and the kernel ends it with SIGHUP.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// standStill stops a process, as if its machine were stopped, until goOn is called.
func standStill(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func goOn(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// endGroup makes the end of the command's context end the child and the child's own children.
func endGroup(cmd *exec.Cmd) {
	ownGroup(cmd)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}
