package redistest

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	startTimeout = 30 * time.Second      // for a redis-server to answer, on a busy machine too
	stopTimeout  = 5 * time.Second       // for a redis-server to end by itself before it is killed
	pollInterval = 5 * time.Millisecond  // between two looks at an outside process
	portRetry    = 50 * time.Millisecond // between two tries to get one certain port
)

var (
	// ErrNoServer says that there is no redis-server on the PATH.
	ErrNoServer = errors.New("redistest: no redis-server on the PATH")

	// ErrStopped is returned for a Server or a Proxy that was stopped for good.
	ErrStopped = errors.New("redistest: stopped")
)

// Server is one redis-server process on a loopback port of its own, without
// persistence and without a password unless the arguments say otherwise.
// Its methods are safe for concurrent use.
type Server struct {
	binary  string
	command func(dir string, port int) (args []string, ready string, err error)
	port    int
	dir     *workdir

	running atomic.Pointer[process] // the latest process, also once it has ended

	// life makes Stop, Kill and Restart one after the other. It is held while
	// they wait for the process, which is what they are for; nothing else
	// takes it.
	life    sync.Mutex
	stopped bool // guarded by life
}

// NewServer starts a redis-server with the extra arguments, such as
// "--maxmemory", "4mb", and returns once it answers. On Linux it dies with
// this process, however that ends. NewServer returns ErrNoServer if there is
// none to start.
func NewServer(args ...string) (*Server, error) {
	return newServer(func(_ string, port int) ([]string, string, error) {
		all := append([]string{
			"--port", strconv.Itoa(port), "--bind", loopback,
			"--save", "", "--appendonly", "no",
		}, args...)
		// "Ready to ..." or, in old versions, "... is now ready to ...".
		return all, "eady to accept connections", nil
	})
}

// newServer starts what command says, given the server's folder and port; it
// also says which words in the log tell that it is ready.
func newServer(command func(dir string, port int) ([]string, string, error)) (*Server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNoServer
	}
	dir, err := newWorkdir()
	if err != nil {
		return nil, err
	}
	s := &Server{binary: binary, command: command, dir: dir}
	// Between choosing a port and binding it another process may take it.
	for range 10 {
		if s.port, err = freePort(); err != nil {
			break
		}
		if err = s.launch(); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	return s, nil
}

// Addr is host:port of the server, the same for its whole life.
func (s *Server) Addr() string {
	return net.JoinHostPort(loopback, strconv.Itoa(s.port))
}

// Pid is the process id of the server, or 0 while it doesn't run.
func (s *Server) Pid() int {
	p := s.running.Load()
	if p.ended() {
		return 0
	}
	return p.cmd.Process.Pid
}

// Stop ends the server for good, paused or not, and removes its files. It
// asks first and kills a server that doesn't follow. Stopping twice is fine.
func (s *Server) Stop() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	s.running.Load().terminate()
	return s.dir.remove()
}

// Kill ends the server at once, as a crash does, and returns when it is gone.
// Restart brings it back.
func (s *Server) Kill() {
	s.life.Lock()
	defer s.life.Unlock()
	s.running.Load().kill()
}

// Restart kills the server if it runs and starts it again on the same port,
// empty unless its arguments ask for persistence. It returns ErrStopped after
// Stop.
func (s *Server) Restart() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.stopped {
		return ErrStopped
	}
	s.running.Load().kill()
	return untilFree(s.launch)
}

// Pause stops the server's process as SIGSTOP does: connections stay open and
// are accepted by the kernel, nothing answers. On Linux it returns once the
// process stands still; where there are no such signals it returns
// errors.ErrUnsupported.
func (s *Server) Pause() error {
	p := s.running.Load()
	if p.ended() {
		return errors.New("redistest: Pause: the server doesn't run")
	}
	return pause(p.cmd.Process)
}

// Resume lets a paused server go on; one that isn't paused is left as it is.
func (s *Server) Resume() error {
	p := s.running.Load()
	if p.ended() {
		return errors.New("redistest: Resume: the server doesn't run")
	}
	return resume(p.cmd.Process)
}

// launch starts a process on s.port and returns when it answers. The error is
// syscall.EADDRINUSE if the port was taken.
func (s *Server) launch() error {
	args, ready, err := s.command(s.dir.path, s.port)
	if err != nil {
		return err
	}
	// Last wins: that it runs is read from its log, and it must stay our child.
	args = append(args, "--daemonize", "no", "--loglevel", "notice", "--logfile", "")

	logged, err := s.dir.logSize()
	if err != nil {
		return err
	}
	p, err := startProcess(s.binary, args, s.dir)
	if err != nil {
		return err
	}
	if err := s.awaitReady(p, logged, ready); err != nil {
		p.kill()
		return err
	}
	s.running.Store(p)
	return nil
}

// awaitReady returns when p, and not a stranger on the same port, answers.
func (s *Server) awaitReady(p *process, logged int64, ready string) error {
	timeout := time.After(startTimeout)
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if s.dir.logged(logged, ready) && answers(s.Addr()) {
			return nil
		}
		select {
		case <-p.exited:
			if s.dir.logged(logged, "Address already in use") {
				return syscall.EADDRINUSE
			}
			return fmt.Errorf("redistest: redis-server ended at start (%v):\n%s", p.err, s.dir.logTail())
		case <-timeout:
			return fmt.Errorf("redistest: redis-server doesn't answer after %v:\n%s", startTimeout, s.dir.logTail())
		case <-tick.C:
		}
	}
}
