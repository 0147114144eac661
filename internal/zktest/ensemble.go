package zktest

import (
	"fmt"
	"strings"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// Ensemble is a group of servers in which a majority decides. Each is a Server that can be killed,
// paused and restarted.
type Ensemble struct{ Servers []*Server }

// StartEnsemble starts an ensemble of n servers for one test, as Start does for one server.
func StartEnsemble(tb TB, n int, args ...string) *Ensemble {
	tb.Helper()
	e, err := NewEnsemble(n, args...)
	return childproc.ForOneTest(tb, kit.Needs, e, err)
}

// NewEnsemble starts n servers with the same arguments, and returns when all of them serve.
func NewEnsemble(n int, args ...string) (*Ensemble, error) {
	// Within a hundred ticks the servers find a leader, or find out that the leader is gone.
	lines := []string{"initLimit=100", "syncLimit=100"}
	for i := range n {
		var ports [2]int // one for the traffic between leader and followers, one for the election
		for j := range ports {
			var err error
			if ports[j], err = childproc.FreePort(); err != nil {
				return nil, err
			}
		}
		lines = append(lines, fmt.Sprintf("server.%d=%s:%d:%d", i+1, childproc.Loopback, ports[0], ports[1]))
	}
	args = append(lines, args...)
	// No server serves before there is a majority.
	servers, err := childproc.StartAll(n, func(i int) (*Server, error) { return newServer(i+1, args) })
	if err != nil {
		return nil, err
	}
	return &Ensemble{servers}, nil
}

// Stop ends all servers for good and removes their files.
func (e *Ensemble) Stop() error { return childproc.StopAll(e.Servers) }

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
