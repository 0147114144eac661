package redistest

import (
	"errors"
	"os/exec"
	"strconv"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

var (
	// ErrNoServer means that there is no redis-server on the PATH.
	ErrNoServer = errors.New("redistest: no redis-server on the PATH")

	// ErrStopped is the error of calls to a Server or a Proxy that was stopped for good.
	ErrStopped = childproc.ErrStopped
)

// Server is one redis-server process on its own loopback port. Unless the arguments say otherwise,
// it has no persistence and no password, so after a Restart it is empty. Its methods are safe for
// concurrent use.
type Server struct{ *childproc.Server }

// NewServer starts a redis-server with the extra arguments, such as "--maxmemory", "4mb", and
// returns once it answers. On Linux the server dies with this process, even if this process is
// killed. If there is no redis-server, NewServer returns ErrNoServer.
func NewServer(args ...string) (*Server, error) {
	// "Ready to ..." or, in old versions, "... is now ready to ...".
	return newServer("eady to accept connections", func(_ string, port int) ([]string, error) {
		return append([]string{
			"--port", strconv.Itoa(port), "--bind", childproc.Loopback,
			"--save", "", "--appendonly", "no",
		}, args...), nil
	})
}

// newServer starts a redis-server. The function arguments returns the server's arguments for a
// folder and a port. The server is ready when its log has the words ready.
func newServer(
	ready string, arguments func(dir string, port int) ([]string, error),
) (*Server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNoServer
	}
	s, err := childproc.New(childproc.Program{
		Name: "redis-server",
		Command: func(dir string, port int) (*exec.Cmd, error) {
			args, err := arguments(dir, port)
			// These arguments come last, because the last value wins. The log must show that the
			// server is ready, and the server must stay a child of this process.
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
