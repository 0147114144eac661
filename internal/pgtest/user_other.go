//go:build !unix

package pgtest

import "os/exec"

func unprivileged(*exec.Cmd) error { return nil }

func own(string, *exec.Cmd) error { return nil }
