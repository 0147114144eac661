package childproc

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// StartTimeout is the longest time that a server may take until it answers, also on a busy
	// machine.
	StartTimeout = 3 * time.Minute

	// PollInterval is the time between two checks of an outside process.
	PollInterval = 5 * time.Millisecond

	// The time that a server has to end by itself before it is killed.
	stopTimeout = 30 * time.Second
	portRetry   = 50 * time.Millisecond // the time between two tries to get the same port
)

// ErrStopped is the error of calls to a server or proxy that was stopped for good.
var ErrStopped = errors.New("childproc: stopped")

// Server is one server process on its own loopback port. Its methods are safe for concurrent use.
type Server struct {
	program Program
	port    *Port
	dir     *workdir

	running atomic.Pointer[process] // the latest process, also after it has ended

	// life lets only one Stop, Kill or Restart run at a time. The running method holds life until
	// the process has ended or, after Restart, is ready. No other method takes it.
	life    sync.Mutex
	stopped bool // guarded by life
}

// New starts a server and returns once it is ready. On Linux the server dies with this process,
// even if this process is killed.
func New(program Program) (*Server, error) {
	dir, err := newWorkdir(program.Name)
	if err != nil {
		return nil, err
	}
	s := &Server{program: program, dir: dir}
	// A program that doesn't reserve ports may take the port before it is bound.
	for range 10 {
		if s.port, err = ReservePort(); err != nil {
			break
		}
		if err = s.launch(); err == nil {
			return s, nil
		}
		s.port.Release()
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, errors.Join(err, dir.remove())
}

// Addr returns host:port of the server. It stays the same for the server's whole life. No other
// server or proxy of this package gets the port before Stop.
func (s *Server) Addr() string { return s.port.Addr() }

// Port returns the port of Addr.
func (s *Server) Port() int { return s.port.Number }

// Dir returns the folder of the server. Stop removes the folder.
func (s *Server) Dir() string { return s.dir.path }

// Pid returns the process id of the server, or 0 while the server doesn't run.
func (s *Server) Pid() int {
	p := s.running.Load()
	if p.ended() {
		return 0
	}
	return p.cmd.Process.Pid
}

// Stop ends the server for good, even if it is paused, and removes its files. Stop first asks the
// server to end, and kills it if it doesn't end. A second Stop does nothing.
func (s *Server) Stop() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	s.running.Load().terminate(s.program.quit())
	s.port.Release()
	return s.dir.remove()
}

// Kill ends the server at once, as a crash does, and returns when the server has ended. Restart
// brings it back.
func (s *Server) Kill() {
	s.life.Lock()
	defer s.life.Unlock()
	s.running.Load().kill()
}

// Restart kills the server if it runs, and starts it again on the same port, with the files in its
// folder. It returns ErrStopped after Stop.
func (s *Server) Restart() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.stopped {
		return ErrStopped
	}
	s.running.Load().kill()
	return UntilFree(s.launch)
}

// Pause stops the server's process as SIGSTOP does. Connections stay open, and the kernel accepts
// new connections, but the server doesn't answer. On Linux, Pause returns when the process stands
// still. On systems without these signals it returns errors.ErrUnsupported.
func (s *Server) Pause() error {
	p := s.running.Load()
	if p.ended() {
		return fmt.Errorf("childproc: Pause: %s doesn't run", s.program.Name)
	}
	return pause(p.cmd.Process)
}

// Resume lets a paused server go on. If the server isn't paused, Resume does nothing.
func (s *Server) Resume() error {
	p := s.running.Load()
	if p.ended() {
		return fmt.Errorf("childproc: Resume: %s doesn't run", s.program.Name)
	}
	return resume(p.cmd.Process)
}

// Exit waits until the running process ends, and returns how it ended. It returns nil if the
// process ended by itself and without an error.
func (s *Server) Exit() error {
	p := s.running.Load()
	<-p.exited
	return p.err
}

// Logged reports whether the first 64 KB of the server's log have these words.
func (s *Server) Logged(words string) bool { return s.dir.logged(0, words) }

// launch starts a process on s.port and returns when it is ready. The error
// is syscall.EADDRINUSE if the port was taken.
func (s *Server) launch() error {
	cmd, err := s.program.Command(s.dir.path, s.port.Number)
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

// awaitReady returns when p is ready. before is the size of the log when p was started, so the
// lines of p come after this many bytes.
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
	return fmt.Errorf("childproc: %s ended at start (%v):\n%s", s.program.Name, p.err,
		s.dir.logTail())
}
