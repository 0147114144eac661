//go:build !unix

package childproc

import (
	"errors"
	"os"
	"os/exec"
)

func dieWithParent(*exec.Cmd) {}

func pause(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }

// lockFile never gets the lock. Without the lock no folder is swept.
func lockFile(*os.File) bool { return false }
