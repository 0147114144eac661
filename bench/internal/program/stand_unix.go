//go:build unix

package program

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup: should the parent die, a child that is stopped can't read the end of its orders. In a
// process group of its own it is orphaned then, and the kernel hangs it up.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// standStill stops a process as if its machine stood still, until goOn.
func standStill(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func goOn(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
