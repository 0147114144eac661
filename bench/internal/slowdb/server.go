// Package slowdb is the origin of the benchmark's replicas. It simulates a slow database in the
// program that conducts a run, and replicas use it over the loopback network. So it sees every
// load, even if the caller dies before the answer. It knows which loads ran at the same time, and
// which version of a value each load returned.
package slowdb

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/wire"
)

// Plan describes the loads of a key.
type Plan struct {
	Takes   time.Duration
	Fails   bool // after Takes
	Missing bool // there is no value with this name

	// With Dated each load returns its own version: the time of its end in nanoseconds since 1970.
	// Without Dated it returns the key's version at its beginning.
	Dated bool

	// From Down to Up the origin fails: loads that begin in this time fail.
	Down, Up time.Time
}

func (p Plan) fails(at time.Time) bool { return p.Fails || !at.Before(p.Down) && at.Before(p.Up) }

// Load is one load. Unless the plan is Dated, it returns the key's version at the time of its
// beginning.
type Load struct {
	Replica  int
	Begin    time.Time
	End      time.Time // zero while the load runs
	Version  int64
	Replaces int64 // the version that its caller already had; 0: none
	Failed   bool
	GivenUp  bool // no caller waited for its end
}

// Server is the origin. It is safe for concurrent use.
type Server struct {
	listener net.Listener
	ctx      context.Context // of all loads
	stop     context.CancelFunc
	tasks    sync.WaitGroup

	mu   sync.Mutex // guards keys
	keys map[string]*shelf
}

// shelf is the state of a key.
type shelf struct {
	plan    Plan
	version int64
	loads   []*Load
	begun   chan struct{} // closed when the first load begins
}

// Listen starts an origin on a loopback port.
func Listen() (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener, keys: map[string]*shelf{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.tasks.Go(s.accept)
	return s, nil
}

// Addr returns host:port for Dial.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close ends the origin and all its connections.
func (s *Server) Close() error {
	s.stop()
	err := s.listener.Close()
	s.tasks.Wait()
	return err
}

// Put makes a key, at version 1.
func (s *Server) Put(key string, p Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key] = &shelf{plan: p, version: 1, begun: make(chan struct{})}
}

// Replan changes the plan of a key for loads that begin from now on.
func (s *Server) Replan(key string, p Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key].plan = p
}

// Change gives a key its next version, and returns this version.
func (s *Server) Change(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[key]
	k.version++
	return k.version
}

// Begun returns a channel that is closed when the first load of a key has begun.
func (s *Server) Begun(key string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[key].begun
}

// Loads returns the loads of a key so far, in the order in which they began.
func (s *Server) Loads(key string) []Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	var loads []Load
	for _, l := range s.keys[key].loads {
		loads = append(loads, *l)
	}
	return loads
}

// MostAtOnce returns the largest number of these loads that ran at the same time.
func MostAtOnce(loads []Load) int {
	type edge struct {
		at   time.Time
		step int
	}
	var edges []edge
	for _, l := range loads {
		edges = append(edges, edge{l.Begin, 1})
		if !l.End.IsZero() {
			edges = append(edges, edge{l.End, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.step - b.step // a load that ends when another begins doesn't run at the same time
	})
	now, most := 0, 0
	for _, e := range edges {
		now += e.step
		most = max(most, now)
	}
	return most
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.tasks.Go(func() { s.serve(conn) })
	}
}

// serve answers one replica. When its connection ends, no caller waits for its loads any more.
func (s *Server) serve(conn net.Conn) {
	stop := context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	defer stop()
	// An error means that the connection has ended, or that the replica has ended in the middle of
	// a message.
	_ = wire.Serve(s.ctx, conn, conn, func(ctx context.Context, ask any) (any, error) {
		r, _ := ask.(request)
		return s.load(ctx, r), nil
	})
	_ = conn.Close()
}

// load makes one load. It gives the load up if no caller waits for it any more.
func (s *Server) load(ctx context.Context, r request) reply {
	s.mu.Lock()
	k := s.keys[r.Key]
	if k == nil {
		s.mu.Unlock()
		return reply{Failed: true}
	}
	l := &Load{Replica: r.Replica, Begin: time.Now(), Version: k.version, Replaces: r.Replaces}
	k.loads = append(k.loads, l)
	plan := k.plan
	if len(k.loads) == 1 {
		close(k.begun)
	}
	s.mu.Unlock()

	timer := time.NewTimer(plan.Takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.End, l.GivenUp, l.Failed = time.Now(), ctx.Err() != nil, plan.fails(l.Begin)
	if plan.Dated && !l.Failed {
		k.version = max(l.End.UnixNano(), k.version+1)
		l.Version = k.version
	}
	if plan.Missing {
		return reply{Failed: l.Failed}
	}
	return reply{l.Version, l.Failed}
}

// ErrFailed is the error of a load that failed at the origin.
var ErrFailed = errors.New("the origin failed")
