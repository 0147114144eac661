//go:build !unix

package program

import (
	"errors"
	"os"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

func endGroup(*exec.Cmd) {}

func standStill(*os.Process) error { return errors.ErrUnsupported }

func goOn(*os.Process) error { return errors.ErrUnsupported }
