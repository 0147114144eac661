//go:build unix && !linux

package childproc

import (
	"os"
	"os/exec"
	"syscall"
)

// dieWithParent does nothing, because only Linux and FreeBSD have a signal for the death of a
// parent.
func dieWithParent(*exec.Cmd) {}

func pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// lockFile never gets the lock. Without the lock no folder is swept.
func lockFile(*os.File) bool { return false }
