//go:build race && unix

package zktest

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// suppressedEnv is the environment variable with the name of the file of suppressions. It is set in
// a process that SuppressRace has restarted.
const suppressedEnv = "CACHEGUARD_ZKTEST_SUPPRESSIONS"

// SuppressRace makes the race detector ignore two data races inside go-zookeeper v1.0.4. All other
// races are still reported. Both are with recvLoop, which reads the server's data:
//
//   - sendSetWatches reads lastZxid, and recvLoop writes it. A test can't avoid this race, because
//     it comes with any watch that is set, or was set, while a connection is being made.
//   - CreateContainer reads the path of its reply although the connection was closed, and recvLoop
//     may just be writing it. Create, for example, doesn't read its reply then.
//
// The detector reads its suppressions when a process starts, so SuppressRace restarts this process,
// with the same process id, arguments and files. Call it first in TestMain, before code that
// distinguishes child processes. If the restart isn't possible, or if GORACE already has
// suppressions, SuppressRace does nothing.
func SuppressRace() {
	options := os.Getenv("GORACE")
	if file := os.Getenv(suppressedEnv); file != "" {
		_ = os.Remove(file)
		_ = os.Unsetenv(suppressedEnv) // for child processes, which call SuppressRace themselves
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
	fmt.Fprintln(os.Stderr, "zktest: go-zookeeper's data races aren't suppressed:", err)
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
	_, err = file.WriteString(
		"race:zk.(*Conn).sendSetWatches\nrace:zk.(*Conn).CreateContainer\n")
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return "", err
	}
	return file.Name(), nil
}
