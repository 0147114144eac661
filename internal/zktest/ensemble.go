package zktest

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// Ensemble is several servers of which a majority decides. Each is a Server that can be killed,
// paused and restarted.
type Ensemble struct{ Servers []*Server }

// StartEnsemble starts an ensemble of n servers for one test, as Start does for one.
func StartEnsemble(tb TB, n int, args ...string) *Ensemble {
	tb.Helper()
	e, err := NewEnsemble(n, args...)
	if err != nil {
		giveUp(tb, err)
		return nil
	}
	tb.Cleanup(func() {
		if err := e.Stop(); err != nil {
			tb.Errorf("zktest: stop: %v", err)
		}
	})
	return e
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
	servers, errs := make([]*Server, n), make([]error, n)
	var starting sync.WaitGroup
	for i := range n {
		starting.Go(func() { servers[i], errs[i] = newServer(i+1, args) }) // none serves before there is a majority
	}
	starting.Wait()
	e := &Ensemble{servers}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// Stop ends all servers for good and removes their files.
func (e *Ensemble) Stop() error {
	errs := make([]error, len(e.Servers))
	var stopping sync.WaitGroup
	for i, s := range e.Servers {
		if s != nil {
			stopping.Go(func() { errs[i] = s.Stop() })
		}
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// Addrs are the addresses of all servers.
func (e *Ensemble) Addrs() []string {
	var addrs []string
	for _, s := range e.Servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Leader is the server that says that it leads, or nil if none does just now.
func (e *Ensemble) Leader() *Server {
	for _, s := range e.Servers {
		if srvr, err := s.Ask("srvr"); err == nil && strings.Contains(srvr, "Mode: leader") {
			return s
		}
	}
	return nil
}
