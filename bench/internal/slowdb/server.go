// Package slowdb is what the benchmark's replicas load from: a slow database, held by the program
// that conducts a run and asked over the loopback network. So it sees every load, whoever makes it
// and whether or not who asked lives to hear the answer, which loads were under way at the same
// time, and which version of a value each has brought.
package slowdb

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// Plan is how the loads of a key go.
type Plan struct {
	Takes   time.Duration
	Fails   bool // after Takes
	Missing bool // there is nothing of this name
}

// Load is one load. It brings what was so when it began.
type Load struct {
	Replica int
	Begin   time.Time
	End     time.Time // zero while it goes on
	Version int64
	GivenUp bool // nobody waited for its end any more
}

// Server is the origin. It is safe for concurrent use.
type Server struct {
	listener net.Listener
	closing  chan struct{}
	tasks    sync.WaitGroup

	mu    sync.Mutex // guards what follows
	conns map[net.Conn]bool
	keys  map[string]*shelf
}

// shelf is what there is to be known of a key.
type shelf struct {
	plan    Plan
	version int64
	loads   []*Load
	begun   chan struct{} // closed when the first load begins
}

// request is what a replica sends.
type request struct {
	ID   int64  `json:"id"`
	Key  string `json:"key,omitempty"`
	Gone bool   `json:"gone,omitempty"` // nobody waits for this one any more
}

// reply is what it gets.
type reply struct {
	ID      int64 `json:"id"`
	Version int64 `json:"version,omitempty"` // 0: there is nothing
	Failed  bool  `json:"failed,omitempty"`
}

// hello is the first that a replica sends.
type hello struct {
	Replica int `json:"replica"`
}

// Listen starts an origin on a loopback port.
func Listen() (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener, closing: make(chan struct{}), conns: map[net.Conn]bool{}, keys: map[string]*shelf{}}
	s.tasks.Go(s.accept)
	return s, nil
}

// Addr is host:port for Dial.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close ends the origin and all its connections.
func (s *Server) Close() error {
	close(s.closing)
	err := s.listener.Close()
	s.mu.Lock()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.tasks.Wait()
	return err
}

// Put makes a key, at version 1.
func (s *Server) Put(key string, p Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key] = &shelf{plan: p, version: 1, begun: make(chan struct{})}
}

// Change gives a key its next version, and returns that.
func (s *Server) Change(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[key]
	k.version++
	return k.version
}

// Begun is closed when the first load of a key has begun.
func (s *Server) Begun(key string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[key].begun
}

// Loads are those of a key so far, in the order in which they began.
func (s *Server) Loads(key string) []Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	var loads []Load
	for _, l := range s.keys[key].loads {
		loads = append(loads, *l)
	}
	return loads
}

// MostAtOnce is how many of these loads were under way at the same time, at most.
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
		return a.step - b.step // what ends when another begins is not beside it
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
		s.mu.Lock()
		s.conns[conn] = true
		s.mu.Unlock()
		select {
		case <-s.closing:
			_ = conn.Close() // Close may have missed it
		default:
		}
		s.tasks.Go(func() { s.serve(conn) })
	}
}

// serve answers one replica. When its connection ends nobody waits for its loads any more.
func (s *Server) serve(conn net.Conn) {
	in := json.NewDecoder(bufio.NewReader(conn))
	var writing sync.Mutex // guards out
	out := json.NewEncoder(conn)
	waiting := map[int64]chan struct{}{} // closed when one is gone
	var loads sync.WaitGroup
	defer func() {
		for _, gone := range waiting {
			close(gone)
		}
		loads.Wait()
		_ = conn.Close()
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	}()
	var h hello
	if in.Decode(&h) != nil {
		return
	}
	for {
		var r request
		if in.Decode(&r) != nil {
			return
		}
		if r.Gone {
			if gone := waiting[r.ID]; gone != nil {
				delete(waiting, r.ID)
				close(gone)
			}
			continue
		}
		gone := make(chan struct{})
		waiting[r.ID] = gone // it stays until the replica says gone, or is
		loads.Go(func() {
			answer, heard := s.load(r, h.Replica, gone)
			if heard {
				writing.Lock()
				defer writing.Unlock()
				_ = out.Encode(answer) // an error means that the replica is gone, which its reader sees
			}
		})
	}
}

// load makes one load, unless nobody waits for it any more before it is over.
func (s *Server) load(r request, replica int, gone <-chan struct{}) (answer reply, heard bool) {
	s.mu.Lock()
	k := s.keys[r.Key]
	if k == nil {
		s.mu.Unlock()
		return reply{ID: r.ID, Failed: true}, true
	}
	l := &Load{Replica: replica, Begin: time.Now(), Version: k.version}
	k.loads = append(k.loads, l)
	plan := k.plan
	if len(k.loads) == 1 {
		close(k.begun)
	}
	s.mu.Unlock()

	timer := time.NewTimer(plan.Takes)
	defer timer.Stop()
	heard = true
	select {
	case <-timer.C:
	case <-gone:
		heard = false
	case <-s.closing:
		heard = false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.End, l.GivenUp = time.Now(), !heard
	answer = reply{ID: r.ID, Version: l.Version, Failed: plan.Fails}
	if plan.Missing {
		answer.Version = 0
	}
	return answer, heard
}

// ErrFailed is the origin's own failure.
var ErrFailed = errors.New("the origin failed")
