//go:build !unix

package locktest

import (
	"errors"
	"os"
	"os/exec"
)

const canSignal = false

func setGroup(*exec.Cmd) {}

func stop(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) {}
