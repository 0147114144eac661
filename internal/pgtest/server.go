package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// ErrNoServer means that there is no PostgreSQL on this machine.
var ErrNoServer = errors.New(
	"pgtest: there is no PostgreSQL: neither postgres nor psql is on the PATH")

// User is the superuser of every Server, and Database its database. There is no password.
const (
	User     = "postgres"
	Database = "postgres"
)

// Server is one PostgreSQL with its own loopback port and its own cluster. After a restart it has
// the same cluster. It doesn't wait for the disk. Its methods are safe for concurrent use.
type Server struct{ *childproc.Server }

// NewServer makes a cluster and starts a server with extra settings, such as "max_connections=10",
// and returns once clients can connect. On Linux the server dies with this process, even if this
// process is killed. If this process is root, the server runs as the user postgres, or as nobody if
// there is no such user, because PostgreSQL refuses to run as root. If there is no PostgreSQL,
// NewServer returns ErrNoServer.
func NewServer(settings ...string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	s, err := childproc.New(childproc.Program{
		Name: "postgresql",
		Command: func(dir string, port int) (*exec.Cmd, error) {
			data := filepath.Join(dir, "data")
			if _, err := os.Stat(data); err != nil {
				if err := initdb(bin, dir, data); err != nil {
					return nil, err
				}
			}
			args := []string{"-D", data, "-p", strconv.Itoa(port)}
			for _, setting := range append([]string{
				"listen_addresses=" + childproc.Loopback, "unix_socket_directories=",
				"fsync=off", "max_connections=200", "logging_collector=off", "lc_messages=C",
			}, settings...) { // the last setting wins
				args = append(args, "-c", setting)
			}
			cmd := exec.Command(filepath.Join(bin, "postgres"), args...)
			return cmd, unprivileged(cmd)
		},
		Ready: func(addr string, logged func(words string) bool) bool {
			return logged("database system is ready to accept connections") && answers(addr)
		},
		PortTaken: "Address already in use",
		Quit:      syscall.SIGINT, // a SIGTERM would wait for clients to leave
	})
	if err != nil {
		return nil, err
	}
	return &Server{s}, nil
}

// URL returns the URL of the server's database, for drivers.
func (s *Server) URL() string { return URL(s.Addr()) }

// URL returns the URL of the database at host:port, which may be the address of a Proxy.
func URL(addr string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", User, addr, Database)
}

// Stop ends the server for good, even if it is paused, and removes its files. A second Stop does
// nothing.
func (s *Server) Stop() error {
	_ = s.Resume() // an error means that the server doesn't run, or can't be paused on this system
	return s.Server.Stop()
}

// Kill ends the server at once with all its processes, as a crash does, and returns when they have
// ended. After Restart the server still has everything that was committed.
func (s *Server) Kill() {
	pid := s.Pid()
	if pid == 0 {
		return
	}
	// First stop the first process, so that it starts no further processes and doesn't replace the
	// dead ones.
	_ = s.Server.Pause()
	family := children(pid)
	for _, child := range family {
		signal(child, syscall.SIGKILL)
	}
	s.Server.Kill()
	s.gone(family)
}

// Restart kills the server if it runs and starts it again, on the same port and with the same data.
// It returns childproc.ErrStopped after Stop.
func (s *Server) Restart() error {
	s.Kill()
	return s.Server.Restart()
}

// Pause stops all processes of the server as SIGSTOP does, and returns when they stand still.
// Connections stay open, and the kernel accepts new connections, but the server doesn't answer. On
// systems where this is not possible, Pause returns errors.ErrUnsupported.
func (s *Server) Pause() error {
	if runtime.GOOS != "linux" {
		return errors.ErrUnsupported // the server's child processes are not known
	}
	if err := s.Server.Pause(); err != nil { // first the process that starts the others
		return err
	}
	family := children(s.Pid())
	for _, child := range family {
		signal(child, stop)
	}
	return eventually(func() bool {
		for _, child := range family {
			if !still(child) {
				return false
			}
		}
		return true
	})
}

// Resume lets a paused server go on. If the server isn't paused, Resume does nothing.
func (s *Server) Resume() error {
	for _, child := range children(s.Pid()) {
		signal(child, cont)
	}
	return s.Server.Resume()
}

// gone waits until processes have ended.
func (s *Server) gone(family []int) {
	_ = eventually(func() bool {
		for _, pid := range family {
			if alive(pid) {
				return false
			}
		}
		return true
	})
}

func eventually(done func() bool) error {
	if !childproc.Until(childproc.StartTimeout, childproc.PollInterval, done) {
		return errors.New("pgtest: processes of the server don't do as they are told")
	}
	return nil
}

// initdb makes a cluster.
func initdb(bin, dir, data string) error {
	probe := &exec.Cmd{}
	if err := unprivileged(probe); err != nil {
		return err
	}
	if err := own(dir, probe); err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", User, "--auth=trust",
		"--encoding=UTF8",
		"--locale=C", "--no-sync", "--no-instructions")
	cmd.Dir, cmd.SysProcAttr = dir, probe.SysProcAttr
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: initdb: %w\n%s", err, out)
	}
	return nil
}

// binaries finds the folder with postgres and initdb. On Debian this folder is not in the PATH, but
// psql is.
func binaries() (string, error) {
	if postgres, err := exec.LookPath("postgres"); err == nil {
		if _, err := os.Stat(filepath.Join(filepath.Dir(postgres), "initdb")); err == nil {
			return filepath.Dir(postgres), nil
		}
	}
	if _, err := exec.LookPath("psql"); err != nil {
		return "", ErrNoServer
	}
	newest, bin := 0, ""
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern has no error
	for _, initdb := range found {
		dir := filepath.Dir(initdb)
		if version, err := strconv.Atoi(filepath.Base(filepath.Dir(dir))); err == nil &&
			version > newest {
			newest, bin = version, dir
		}
	}
	if bin == "" {
		return "", ErrNoServer
	}
	return bin, nil
}

// answers reports whether a PostgreSQL is at addr. PostgreSQL answers the question for encryption
// with one byte.
func answers(addr string) bool {
	sslRequest := []byte{0, 0, 0, 8, 4, 210, 22, 47}
	reply, _ := childproc.Ask(addr, 10*time.Second, sslRequest, 1)
	return string(reply) == "N" || string(reply) == "S"
}
