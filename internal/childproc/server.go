package childproc

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// StartTimeout is how long a server may take to answer, on a busy machine too.
	StartTimeout = 30 * time.Second

	// PollInterval is what passes between two looks at an outside process.
	PollInterval = 5 * time.Millisecond

	stopTimeout = 5 * time.Second       // for a server to end by itself before it is killed
	portRetry   = 50 * time.Millisecond // between two tries to get one certain port
)

// ErrStopped is returned for what was stopped for good.
var ErrStopped = errors.New("childproc: stopped")

// Server is one server process on a loopback port of its own. Its methods are
// safe for concurrent use.
type Server struct {
	program Program
	port    int
	dir     *workdir

	running atomic.Pointer[process] // the latest process, also once it has ended

	// life makes Stop, Kill and Restart one after the other. It is held while
	// they wait for the process, which is what they are for; nothing else
	// takes it.
	life    sync.Mutex
	stopped bool // guarded by life
}

// New starts a server and returns once it is ready. On Linux it dies with
// this process, however that ends.
func New(program Program) (*Server, error) {
	dir, err := newWorkdir(program.Name)
	if err != nil {
		return nil, err
	}
	s := &Server{program: program, dir: dir}
	// Between choosing a port and binding it another process may take it.
	for range 10 {
		if s.port, err = FreePort(); err != nil {
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
func (s *Server) Addr() string { return net.JoinHostPort(Loopback, strconv.Itoa(s.port)) }

// Port is the port of Addr.
func (s *Server) Port() int { return s.port }

// Dir is the folder of the server. Stop removes it.
func (s *Server) Dir() string { return s.dir.path }

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
	s.running.Load().terminate(s.program.quit())
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
// with what it finds in its folder. It returns ErrStopped after Stop.
func (s *Server) Restart() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.stopped {
		return ErrStopped
	}
	s.running.Load().kill()
	return UntilFree(s.launch)
}

// Pause stops the server's process as SIGSTOP does: connections stay open and
// are accepted by the kernel, nothing answers. On Linux it returns once the
// process stands still; where there are no such signals it returns
// errors.ErrUnsupported.
func (s *Server) Pause() error {
	p := s.running.Load()
	if p.ended() {
		return fmt.Errorf("childproc: Pause: %s doesn't run", s.program.Name)
	}
	return pause(p.cmd.Process)
}

// Resume lets a paused server go on; one that isn't paused is left as it is.
func (s *Server) Resume() error {
	p := s.running.Load()
	if p.ended() {
		return fmt.Errorf("childproc: Resume: %s doesn't run", s.program.Name)
	}
	return resume(p.cmd.Process)
}

// Exit waits for the end of the process that runs, and returns how it ended:
// nil if it did so by itself and in order.
func (s *Server) Exit() error {
	p := s.running.Load()
	<-p.exited
	return p.err
}

// Logged reports whether the server has ever logged these words, as far as
// the first 64 KB of its log tell.
func (s *Server) Logged(words string) bool { return s.dir.logged(0, words) }

// launch starts a process on s.port and returns when it is ready. The error
// is syscall.EADDRINUSE if the port was taken.
func (s *Server) launch() error {
	cmd, err := s.program.Command(s.dir.path, s.port)
	if err != nil {
		return err
	}
	logged, err := s.dir.logSize()
	if err != nil {
		return err
	}
	p, err := startProcess(cmd, s.dir)
	if err != nil {
		return err
	}
	if err := s.awaitReady(p, logged); err != nil {
		p.kill()
		return err
	}
	s.running.Store(p)
	return nil
}

// awaitReady returns when p is ready. What p logs comes after the first
// before bytes.
func (s *Server) awaitReady(p *process, before int64) error {
	logged := func(words string) bool { return s.dir.logged(before, words) }
	var ready bool
	Until(StartTimeout, PollInterval, func() bool {
		ready = s.program.Ready(s.Addr(), logged)
		return ready || p.ended()
	})
	switch {
	case ready:
		return nil
	case !p.ended():
		return fmt.Errorf("childproc: %s isn't ready after %v:\n%s",
			s.program.Name, StartTimeout, s.dir.logTail())
	case logged(s.program.PortTaken):
		return syscall.EADDRINUSE
	}
	return fmt.Errorf("childproc: %s ended at start (%v):\n%s", s.program.Name, p.err, s.dir.logTail())
}
