package zktest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// Ensemble is a group of servers in which a majority decides. Each is a Server that can be killed,
// paused and restarted.
type Ensemble struct {
	Servers []*Server
	ports   []*childproc.Port // those on which the servers talk to each other
}

// StartEnsemble starts an ensemble of n servers for one test, as Start does for one server.
func StartEnsemble(tb TB, n int, args ...string) *Ensemble {
	tb.Helper()
	e, err := NewEnsemble(n, args...)
	return childproc.ForOneTest(tb, kit.Needs, e, err)
}

// NewEnsemble starts n servers with the same arguments, and returns when all of them serve.
func NewEnsemble(n int, args ...string) (*Ensemble, error) {
	// Within a hundred ticks the servers find a leader, or find out that the leader is gone.
	lines, e := []string{"initLimit=100", "syncLimit=100"}, &Ensemble{}
	for i := range n {
		line := fmt.Sprintf("server.%d=%s", i+1, childproc.Loopback)
		for range 2 { // one port for the traffic between leader and followers, one for the election
			port, err := childproc.ReservePort()
			if err != nil {
				return nil, errors.Join(err, e.Stop())
			}
			e.ports = append(e.ports, port)
			line += fmt.Sprint(":", port.Number)
		}
		lines = append(lines, line)
	}
	args = append(lines, args...)
	// No server serves before there is a majority.
	servers, err := childproc.StartAll(n, func(i int) (*Server, error) {
		return newServer(i+1, args)
	})
	if err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	e.Servers = servers
	return e, nil
}

// Stop ends all servers for good and removes their files.
func (e *Ensemble) Stop() error {
	err := childproc.StopAll(e.Servers)
	for _, port := range e.ports {
		port.Release()
	}
	return err
}

// Addrs returns the addresses of all servers.
func (e *Ensemble) Addrs() []string { return childproc.Addrs(e.Servers) }

// Leader returns the server that reports that it is the leader, or nil if there is none at present.
func (e *Ensemble) Leader() *Server {
	for _, s := range e.Servers {
		if srvr, err := s.Ask("srvr"); err == nil && strings.Contains(srvr, "Mode: leader") {
			return s
		}
	}
	return nil
}
