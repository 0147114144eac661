package redistest

import (
	"errors"
	"os/exec"
	"strconv"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

var (
	// ErrNoServer says that there is no redis-server on the PATH.
	ErrNoServer = errors.New("redistest: no redis-server on the PATH")

	// ErrStopped is returned for a Server or a Proxy that was stopped for good.
	ErrStopped = childproc.ErrStopped
)

// Server is one redis-server process on a loopback port of its own, without
// persistence and without a password unless the arguments say otherwise: a
// Restart brings it back empty. Its methods are safe for concurrent use.
type Server struct{ *childproc.Server }

// NewServer starts a redis-server with the extra arguments, such as
// "--maxmemory", "4mb", and returns once it answers. On Linux it dies with
// this process, however that ends. NewServer returns ErrNoServer if there is
// none to start.
func NewServer(args ...string) (*Server, error) {
	// "Ready to ..." or, in old versions, "... is now ready to ...".
	return newServer("eady to accept connections", func(_ string, port int) ([]string, error) {
		return append([]string{
			"--port", strconv.Itoa(port), "--bind", childproc.Loopback,
			"--save", "", "--appendonly", "no",
		}, args...), nil
	})
}

// newServer starts a redis-server with what arguments says, given the server's
// folder and port. The words ready in the log tell that it is.
func newServer(ready string, arguments func(dir string, port int) ([]string, error)) (*Server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNoServer
	}
	s, err := childproc.New(childproc.Program{
		Name: "redis-server",
		Command: func(dir string, port int) (*exec.Cmd, error) {
			args, err := arguments(dir, port)
			// Last wins: that it runs is read from its log, and it must stay our child.
			args = append(args, "--daemonize", "no", "--loglevel", "notice", "--logfile", "")
			return exec.Command(binary, args...), err
		},
		Ready: func(addr string, logged func(words string) bool) bool {
			return logged(ready) && answers(addr)
		},
		PortTaken: "Address already in use",
	})
	if err != nil {
		return nil, err
	}
	return &Server{s}, nil
}
