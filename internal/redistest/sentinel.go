package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

const (
	// SentinelMaster is the name under which the sentinels know the master.
	SentinelMaster = "master"

	// The time after which a sentinel takes a silent server for dead.
	downAfter       = 1500 * time.Millisecond
	failoverTimeout = 5 * time.Second
)

// Sentinel is a master with replicas and the sentinels that watch them. Each server and each
// sentinel is a Server. Sentinels are started in another way: with a file to which they write, and
// without the options of a server.
type Sentinel struct {
	servers   []*Server // first the master at the start, then its replicas
	sentinels []*Server
}

// StartSentinel starts a master, its replicas and sentinels for one test, as
// Start does for a server.
func StartSentinel(tb TB, replicas, sentinels int) *Sentinel {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	s, err := NewSentinel(ctx, replicas, sentinels)
	return childproc.ForOneTest(tb, kit.Needs, s, err)
}

// NewSentinel starts a master with this number of replicas and this number of sentinels. A majority
// of the sentinels must agree on a failover. NewSentinel returns when every sentinel knows all
// others. ctx bounds the wait.
func NewSentinel(ctx context.Context, replicas, sentinels int) (*Sentinel, error) {
	master, err := NewServer("--repl-diskless-sync-delay", "0")
	if err != nil {
		return nil, err
	}
	s := &Sentinel{servers: []*Server{master}}
	port := strconv.Itoa(master.Port())
	followers, err := childproc.StartAll(replicas, func(int) (*Server, error) {
		return NewServer("--repl-diskless-sync-delay", "0", "--replicaof",
			childproc.Loopback+" "+port)
	})
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	s.servers = append(s.servers, followers...)
	// All replicas must follow first, because a sentinel asks the master for its replicas at once,
	// and then only every ten seconds.
	if err := until(ctx, func() error { return s.allFollow(ctx, master, replicas) }); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	s.sentinels, err = childproc.StartAll(sentinels, func(int) (*Server, error) {
		return newSentinel(port, sentinels/2+1)
	})
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	err = until(ctx, func() error {
		for _, sentinel := range s.sentinels {
			if err := s.sees(ctx, sentinel, replicas); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// newSentinel starts one sentinel.
func newSentinel(masterPort string, quorum int) (*Server, error) {
	return newServer("Sentinel ID is", func(dir string, port int) ([]string, error) {
		config := filepath.Join(dir, "sentinel.conf")
		lines := []string{
			fmt.Sprintf("sentinel monitor %s %s %s %d", SentinelMaster, childproc.Loopback,
				masterPort, quorum),
			fmt.Sprintf("sentinel down-after-milliseconds %s %d", SentinelMaster,
				downAfter.Milliseconds()),
			fmt.Sprintf("sentinel failover-timeout %s %d", SentinelMaster,
				failoverTimeout.Milliseconds()),
			fmt.Sprintf("sentinel parallel-syncs %s 8", SentinelMaster),
			fmt.Sprintf("port %d", port), "bind " + childproc.Loopback, "",
		}
		// After a restart, the sentinel reads the file that it has written.
		if _, err := os.Stat(config); err == nil {
			return []string{config, "--sentinel"}, nil
		}
		err := os.WriteFile(config, []byte(strings.Join(lines, "\n")), 0o600)
		return []string{config, "--sentinel"}, err
	})
}

// Stop ends all servers and sentinels for good and removes their files.
func (s *Sentinel) Stop() error {
	return errors.Join(childproc.StopAll(s.sentinels), childproc.StopAll(s.servers))
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string { return childproc.Addrs(s.sentinels) }

// Servers returns the addresses of the master and its replicas.
func (s *Sentinel) Servers() []string { return childproc.Addrs(s.servers) }

// Node returns the server or the sentinel at an address, or nil. A test can kill, pause, resume or
// restart it.
func (s *Sentinel) Node(addr string) *Server {
	return serverAt(append(append([]*Server{}, s.servers...), s.sentinels...), addr)
}

// Master returns the address of the master if all sentinels that answer agree.
func (s *Sentinel) Master(ctx context.Context) (master string, err error) {
	for _, sentinel := range s.sentinels {
		if sentinel.Pid() == 0 {
			continue
		}
		reply, err := ask(ctx, sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SentinelMaster)
		if err != nil {
			continue
		}
		at, _ := reply.([]any)
		if len(at) != 2 {
			return "", errProtocol("a sentinel has %v as address of the master", reply)
		}
		addr := net.JoinHostPort(fmt.Sprint(at[0]), fmt.Sprint(at[1]))
		if master != "" && master != addr {
			return "", fmt.Errorf("redistest: sentinels have %s and %s as master", master, addr)
		}
		master = addr
	}
	if master == "" {
		return "", errors.New("redistest: no sentinel answers")
	}
	return master, nil
}

// Failover tells the sentinels to make a replica the master although the present master works. It
// doesn't wait for the failover.
func (s *Sentinel) Failover(ctx context.Context) error {
	return until(ctx, func() error { // a sentinel refuses for a while after another failover
		_, err := ask(ctx, s.sentinels[0], "SENTINEL", "FAILOVER", SentinelMaster)
		return err
	})
}

// AwaitFailover waits until there is another master than old, and returns the new master. It
// returns when the sentinels agree on the new master, the new master itself reports this role, and
// every other server that answers, except old, follows it. ctx bounds the wait.
func (s *Sentinel) AwaitFailover(ctx context.Context, old string) (master string, err error) {
	err = until(ctx, func() error {
		if master, err = s.Master(ctx); err != nil {
			return err
		}
		if master == old {
			return fmt.Errorf("%s is still the master", old)
		}
		followers := 0
		for _, server := range s.servers {
			if addr := server.Addr(); addr != old && addr != master && server.Pid() != 0 {
				followers++
			}
		}
		return s.allFollow(ctx, s.Node(master), followers)
	})
	return master, err
}

// allFollow returns nil if the server is a master with at least n replicas that have all its data.
func (s *Sentinel) allFollow(ctx context.Context, master *Server, n int) error {
	info, err := text(ctx, master, "INFO", "replication")
	if err == nil &&
		(!strings.Contains(info, "role:master") || strings.Count(info, "state=online") < n) {
		err = fmt.Errorf("%s is not a master with %d replicas: %q", master.Addr(), n, info)
	}
	return err
}

// sees returns nil if a sentinel knows the replicas and all other sentinels.
func (s *Sentinel) sees(ctx context.Context, sentinel *Server, replicas int) error {
	reply, err := ask(ctx, sentinel, "SENTINEL", "MASTER", SentinelMaster)
	if err != nil {
		return err
	}
	fields, _ := reply.([]any)
	about := make(map[string]string)
	for i := 0; i+1 < len(fields); i += 2 {
		about[fmt.Sprint(fields[i])] = fmt.Sprint(fields[i+1])
	}
	if about["flags"] != "master" || about["num-slaves"] != strconv.Itoa(replicas) ||
		about["num-other-sentinels"] != strconv.Itoa(len(s.sentinels)-1) {
		return fmt.Errorf("sentinel %s knows %s replicas and %s other sentinels of a %s",
			sentinel.Addr(), about["num-slaves"], about["num-other-sentinels"], about["flags"])
	}
	return nil
}
