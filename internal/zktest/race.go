//go:build race && unix

package zktest

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// suppressedEnv names the file with the suppressions in a process that SuppressRace has begun anew.
const suppressedEnv = "CACHEGUARD_ZKTEST_SUPPRESSIONS"

// SuppressRace has the race detector say nothing of a data race inside go-zookeeper v1.0.4, between
// the goroutine that has connected (sendSetWatches reads lastZxid) and the one that reads what the
// server sends (recvLoop writes it). A test can't keep clear of it: it comes with any watch that is
// set, or was set, while a connection is being made. Everything else is still reported.
//
// The detector reads its suppressions when a process starts, so this process begins anew, with the
// same number, arguments and files: call it first in TestMain, before child processes are told
// apart. Where it can't, or GORACE has suppressions already, nothing changes.
func SuppressRace() {
	options := os.Getenv("GORACE")
	if file := os.Getenv(suppressedEnv); file != "" {
		_ = os.Remove(file)
		_ = os.Unsetenv(suppressedEnv) // for child processes: they do this themselves
		_ = os.Setenv("GORACE", strings.TrimSuffix(options, option(file)))
		return
	}
	if strings.Contains(options, "suppressions=") {
		return
	}
	program, err := os.Executable()
	if err != nil {
		return
	}
	file, err := writeSuppressions()
	if err != nil {
		return
	}
	_ = os.Setenv(suppressedEnv, file)
	_ = os.Setenv("GORACE", options+option(file))
	err = syscall.Exec(program, os.Args, os.Environ())
	fmt.Fprintln(os.Stderr, "zktest: go-zookeeper's data race isn't suppressed:", err)
	_ = os.Remove(file)
	_ = os.Unsetenv(suppressedEnv)
	_ = os.Setenv("GORACE", options)
}

func option(file string) string { return ` suppressions="` + file + `"` }

func writeSuppressions() (string, error) {
	file, err := os.CreateTemp("", "cacheguard-suppressions")
	if err != nil {
		return "", err
	}
	_, err = file.WriteString("race:zk.(*Conn).sendSetWatches\n")
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return "", err
	}
	return file.Name(), nil
}
