package zktest

import (
	"fmt"
	"strings"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// Ensemble is several servers of which a majority decides. Each is a Server that can be killed,
// paused and restarted.
type Ensemble struct{ Servers []*Server }

// StartEnsemble starts an ensemble of n servers for one test, as Start does for one.
func StartEnsemble(tb TB, n int, args ...string) *Ensemble {
	tb.Helper()
	e, err := NewEnsemble(n, args...)
	return childproc.ForOneTest(tb, kit.Needs, e, err)
}

// NewEnsemble starts n servers, with the same arguments each, and returns once all serve.
func NewEnsemble(n int, args ...string) (*Ensemble, error) {
	// In a hundred ticks they have found a leader, or found out that it is gone.
	lines := []string{"initLimit=100", "syncLimit=100"}
	for i := range n {
		var ports [2]int // for what leader and followers say to each other, and for the election
		for j := range ports {
			var err error
			if ports[j], err = childproc.FreePort(); err != nil {
				return nil, err
			}
		}
		lines = append(lines, fmt.Sprintf("server.%d=%s:%d:%d", i+1, childproc.Loopback, ports[0], ports[1]))
	}
	args = append(lines, args...)
	// None serves before there is a majority.
	servers, err := childproc.StartAll(n, func(i int) (*Server, error) { return newServer(i+1, args) })
	if err != nil {
		return nil, err
	}
	return &Ensemble{servers}, nil
}

// Stop ends all servers for good and removes their files.
func (e *Ensemble) Stop() error { return childproc.StopAll(e.Servers) }

// Addrs are the addresses of all servers.
func (e *Ensemble) Addrs() []string { return childproc.Addrs(e.Servers) }

// Leader is the server that says that it leads, or nil if none does just now.
func (e *Ensemble) Leader() *Server {
	for _, s := range e.Servers {
		if srvr, err := s.Ask("srvr"); err == nil && strings.Contains(srvr, "Mode: leader") {
			return s
		}
	}
	return nil
}
