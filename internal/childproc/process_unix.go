//go:build unix && !linux

package childproc

import (
	"os"
	"os/exec"
	"syscall"
)

// dieWithParent does nothing: only Linux and FreeBSD have such a signal.
func dieWithParent(*exec.Cmd) {}

func pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// lockFile never gets the lock: without it nothing is swept.
func lockFile(*os.File) bool { return false }
