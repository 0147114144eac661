package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

const (
	slots = 16384 // of any cluster

	// nodeTimeout is how long a node of a Cluster must be silent before the other nodes take it for
	// dead. A replica becomes master after two to three times this time. On a busy machine a node
	// that lives may be silent for a second.
	nodeTimeout = 1500 * time.Millisecond

	// joinTimeout is how long several servers may take to start and to find each other.
	joinTimeout = 2 * childproc.StartTimeout

	soon = 2 * time.Second // a node that answers no PING within this time is not asked further
)

// Cluster is a Redis Cluster of processes on loopback: masters that share the slots evenly, with
// the same number of replicas each. Every node is a Server with arguments, so it can be killed,
// paused and restarted. A restarted node remembers its role, and finds out whether it still has
// this role.
type Cluster struct {
	masters int
	nodes   []*Server // first the masters at the start, then their replicas in turn
}

// StartCluster starts a cluster for one test, with extra arguments for each
// node, as Start does for a server.
func StartCluster(tb TB, masters, replicas int, args ...string) *Cluster {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	c, err := NewCluster(ctx, masters, replicas, args...)
	return childproc.ForOneTest(tb, kit.Needs, c, err)
}

// NewCluster starts a cluster with this number of masters, each with this number of replicas. It
// returns when every node reports that the cluster is in order. ctx bounds the wait.
func NewCluster(ctx context.Context, masters, replicas int, args ...string) (*Cluster, error) {
	timeout := nodeTimeout
	if replicas == 0 {
		timeout = time.Minute // no node can take over, so none must be taken for dead
	}
	args = append([]string{
		"--cluster-enabled", "yes",
		"--cluster-node-timeout", strconv.FormatInt(timeout.Milliseconds(), 10),
		// A replica may become master even if it hasn't heard from its master for long.
		"--cluster-replica-validity-factor", "0",
		"--repl-diskless-sync-delay", "0",
	}, args...)
	start := func(int) (*Server, error) { return NewServer(args...) }
	nodes, err := childproc.StartAll(masters*(1+replicas), start)
	if err != nil {
		return nil, err
	}
	c := &Cluster{masters: masters, nodes: nodes}
	if err := c.join(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// join makes a cluster of the nodes.
func (c *Cluster) join(ctx context.Context) error {
	for i, node := range c.nodes {
		if _, err := ask(ctx, node, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
		if i < c.masters {
			first, last := i*slots/c.masters, (i+1)*slots/c.masters-1
			add := []string{"ADDSLOTS"} // ADDSLOTSRANGE came with Redis 7.0
			for slot := first; slot <= last; slot++ {
				add = append(add, strconv.Itoa(slot))
			}
			if _, err := ask(ctx, node, "CLUSTER", add...); err != nil {
				return err
			}
		}
	}
	if err := until(ctx, func() error { return c.meet(ctx) }); err != nil {
		return err
	}
	for i, node := range c.nodes[c.masters:] {
		id, err := nodeID(ctx, c.nodes[i%c.masters])
		if err != nil {
			return err
		}
		if err := until(ctx, func() error { // the replica has to hear of its master first
			_, err := ask(ctx, node, "CLUSTER", "REPLICATE", id)
			return err
		}); err != nil {
			return err
		}
	}
	return c.AwaitWhole(ctx)
}

// meet makes each node meet those that it doesn't know yet, and returns nil if there are none. A
// node forgets another that doesn't answer in time, so it may have to be told again.
func (c *Cluster) meet(ctx context.Context) (err error) {
	for _, node := range c.nodes {
		list, failed := text(ctx, node, "CLUSTER", "NODES")
		if failed != nil {
			return failed
		}
		for _, other := range c.nodes {
			met := slices.ContainsFunc(strings.Split(list, "\n"), func(line string) bool {
				return strings.Contains(line, " "+other.Addr()+"@") &&
					!strings.Contains(line, "handshake")
			})
			if met || other == node {
				continue
			}
			err = fmt.Errorf("%s doesn't know %s", node.Addr(), other.Addr())
			if _, failed := ask(ctx, node, "CLUSTER", "MEET", childproc.Loopback,
				strconv.Itoa(other.Port())); failed != nil {
				return failed
			}
		}
	}
	return err
}

// Stop ends all nodes for good and removes their files.
func (c *Cluster) Stop() error { return childproc.StopAll(c.nodes) }

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string { return childproc.Addrs(c.nodes) }

// Node returns the node at an address, or nil. A test can kill, pause, resume or restart the node.
func (c *Cluster) Node(addr string) *Server { return serverAt(c.nodes, addr) }

func serverAt(servers []*Server, addr string) *Server {
	for _, s := range servers {
		if s.Addr() == addr {
			return s
		}
	}
	return nil
}

// Master returns the address of the master that has the slot of a key, according to the first node
// that answers. If the machine is so busy that no node answers soon, Master asks again; ctx bounds
// the wait.
func (c *Cluster) Master(ctx context.Context, key string) (master string, err error) {
	err = until(ctx, func() (err error) {
		errs := []error{errors.New("no node answers")}
		for _, node := range c.answering(ctx) {
			if master, err = masterOf(ctx, node, key); err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		return fmt.Errorf("master of %q: %w", key, errors.Join(errs...))
	})
	return master, err
}

// Replica returns the address of a replica of a master, according to the master.
func (c *Cluster) Replica(ctx context.Context, master string) (string, error) {
	id, err := nodeID(ctx, c.Node(master))
	if err != nil {
		return "", err
	}
	reply, err := ask(ctx, c.Node(master), "CLUSTER", "REPLICAS", id)
	if err != nil {
		return "", err
	}
	line, _ := first(reply).(string) // "<id> <host>:<port>@<bus port> ..."
	if fields := strings.Fields(line); len(fields) > 1 {
		addr, _, _ := strings.Cut(fields[1], "@")
		return addr, nil
	}
	return "", fmt.Errorf("redistest: %s has no replica", master)
}

// AwaitFailover waits until a key has another master than old, and returns the new master. It
// returns when every node that answers, including the new master, names this master and reports
// that the cluster is in order. ctx bounds the wait.
func (c *Cluster) AwaitFailover(ctx context.Context, key, old string) (master string, err error) {
	err = until(ctx, func() (err error) {
		master, err = c.replaced(ctx, key, old)
		return err
	})
	return master, err
}

// replaced is one look of AwaitFailover: it returns the new master, or why AwaitFailover has to go
// on waiting.
func (c *Cluster) replaced(ctx context.Context, key, old string) (master string, err error) {
	for _, node := range c.answering(ctx) {
		its, err := masterOf(ctx, node, key)
		if err != nil {
			return "", err
		}
		if master == "" {
			master = its
		}
		if its == old || its != master {
			return "", fmt.Errorf("%s has %s as master of %q", node.Addr(), its, key)
		}
		if err := inOrder(ctx, node); err != nil {
			return "", err
		}
	}
	if master == "" {
		return "", errors.New("no node answers")
	}
	role, err := ask(ctx, c.Node(master), "ROLE")
	if err != nil {
		return "", err
	}
	if first(role) != "master" {
		return "", fmt.Errorf("%s says it is %v", master, first(role))
	}
	return master, nil
}

// Failover makes a replica the master of a key although the present master works, and returns when
// AwaitFailover does. The replica gives up after five seconds (CLUSTER_MF_TIMEOUT in its source),
// which may be too short for a busy machine: it is then told again. ctx bounds the wait.
func (c *Cluster) Failover(ctx context.Context, key, replica string) error {
	old, err := c.Master(ctx, key)
	if err != nil {
		return err
	}
	var told time.Time
	var refused error
	// Only ctx cuts off a look, because on a slow machine a look may take longer than six seconds.
	err = until(ctx, func() error {
		if time.Since(told) > 6*time.Second {
			_, refused = ask(ctx, c.Node(replica), "CLUSTER", "FAILOVER")
			told = time.Now()
		}
		_, err := c.replaced(ctx, key, old)
		return err
	})
	if err != nil {
		return errors.Join(err, refused)
	}
	return nil
}

// AwaitWhole returns when every node answers, knows all other nodes and reports that the cluster is
// in order, when every replica follows its master, and when all nodes agree on the epochs. ctx
// bounds the wait.
//
// After slots were moved, two masters may have the same epoch. One of them then takes a higher
// epoch by itself. If this master dies before its replica has heard of the higher epoch, the
// replica is elected with an epoch that the other nodes take for an old one. Then the slots have no
// master for good.
func (c *Cluster) AwaitWhole(ctx context.Context) error {
	return until(ctx, func() error {
		var agreed string
		for i, node := range c.nodes {
			if err := inOrder(ctx, node); err != nil {
				return err
			}
			if err := follows(ctx, node); err != nil {
				return err
			}
			epochs, err := c.known(ctx, node)
			if err != nil {
				return err
			}
			if i > 0 && epochs != agreed {
				return fmt.Errorf("the epochs are %q to %s, and %q to %s", agreed,
					c.nodes[0].Addr(), epochs, node.Addr())
			}
			agreed = epochs
		}
		return nil
	})
}

// answering returns the nodes that answer soon.
func (c *Cluster) answering(ctx context.Context) []*Server {
	var nodes []*Server
	for _, node := range c.nodes {
		if node.Pid() == 0 {
			continue
		}
		soon, cancel := context.WithTimeout(ctx, soon)
		_, err := ask(soon, node, "PING")
		cancel()
		if err == nil {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// masterOf returns the address of the master of a key, according to a node.
func masterOf(ctx context.Context, node *Server, key string) (string, error) {
	slot, err := keySlot(ctx, node, key)
	if err != nil {
		return "", err
	}
	reply, err := ask(ctx, node, "CLUSTER", "SLOTS")
	if err != nil {
		return "", err
	}
	ranges, _ := reply.([]any)
	for _, r := range ranges {
		part, _ := r.([]any)
		if len(part) < 3 || slot < number(part[0]) || slot > number(part[1]) {
			continue
		}
		if at, _ := part[2].([]any); len(at) >= 2 {
			return net.JoinHostPort(fmt.Sprint(at[0]), strconv.FormatInt(number(at[1]), 10)), nil
		}
	}
	return "", fmt.Errorf("nobody has slot %d", slot)
}

// keySlot returns the slot of a key, according to the server.
func keySlot(ctx context.Context, node *Server, key string) (int64, error) {
	reply, err := ask(ctx, node, "CLUSTER", "KEYSLOT", key)
	return number(reply), err
}

func nodeID(ctx context.Context, node *Server) (string, error) {
	reply, err := ask(ctx, node, "CLUSTER", "MYID")
	id, _ := reply.(string)
	return id, err
}

// inOrder returns nil if the node reports that the cluster is in order.
func inOrder(ctx context.Context, node *Server) error {
	info, err := text(ctx, node, "CLUSTER", "INFO")
	if err == nil &&
		!(strings.Contains(info, "cluster_state:ok") &&
			strings.Contains(info, "cluster_slots_ok:16384")) {
		err = fmt.Errorf("%s finds the cluster not in order: %.120q", node.Addr(), info)
	}
	return err
}

// known returns the epochs that the node knows, its own and those of the masters. It returns an
// error if the node has no connection to one of the nodes, takes one for failed, doesn't know which
// are replicas, or knows two masters with one epoch.
func (c *Cluster) known(ctx context.Context, node *Server) (epochs string, err error) {
	list, err := text(ctx, node, "CLUSTER", "NODES")
	if err != nil {
		return "", err
	}
	masters, replicas := map[string]string{}, 0 // the masters by epoch
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) < 8 || strings.Contains(fields[2], "fail") ||
			strings.Contains(fields[2], "handshake") || fields[7] != "connected" {
			return "", fmt.Errorf("%s is not in order with %q", node.Addr(), line)
		}
		if strings.Contains(fields[2], "slave") {
			replicas++
		} else {
			masters[fields[6]] = fields[0]
		}
	}
	if len(masters) != c.masters || replicas != len(c.nodes)-c.masters {
		return "", fmt.Errorf(
			"%s knows %d masters with different epochs and %d replicas; there are %d and %d",
			node.Addr(), len(masters), replicas, c.masters, len(c.nodes)-c.masters)
	}
	info, err := text(ctx, node, "CLUSTER", "INFO")
	_, current, _ := strings.Cut(info, "cluster_current_epoch:")
	current, _, _ = strings.Cut(current, "\r\n")
	return fmt.Sprint(current, masters), err // fmt sorts the keys of a map
}

// follows returns nil for a master, and for a replica that has all the data of its master.
func follows(ctx context.Context, server *Server) error {
	info, err := text(ctx, server, "INFO", "replication")
	if err == nil && strings.Contains(info, "role:slave") &&
		!strings.Contains(info, "master_link_status:up") {
		err = fmt.Errorf("%s doesn't follow its master yet", server.Addr())
	}
	return err
}

// ask sends a command to a server that may be paused.
func ask(ctx context.Context, server *Server, name string, args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // long, because the machine may be busy
	defer cancel()
	raw := make([][]byte, len(args))
	for i, arg := range args {
		raw[i] = []byte(arg)
	}
	reply, err := do(ctx, server.Addr(), name, raw...)
	if err != nil {
		state, _ := childproc.State(server.Pid())
		return nil, fmt.Errorf("redistest: %s to %s, whose process is in state %q: %w",
			strings.Join(append([]string{name}, args...), " "), server.Addr(), state, err)
	}
	return reply, nil
}

func text(ctx context.Context, server *Server, name string, args ...string) (string, error) {
	reply, err := ask(ctx, server, name, args...)
	s, _ := reply.(string)
	return s, err
}

func number(reply any) int64 {
	n, _ := reply.(int64)
	return n
}

func first(reply any) any {
	if all, _ := reply.([]any); len(all) > 0 {
		return all[0]
	}
	return nil
}

// until calls look, which asks outside processes, until it returns no error.
func until(ctx context.Context, look func() error) error {
	tick := time.NewTicker(4 * childproc.PollInterval)
	defer tick.Stop()
	var last error
	for {
		err := look()
		if err == nil {
			return nil
		}
		// A look that ctx has cut off says nothing of what was waited for.
		if deadline, bounded := ctx.Deadline(); last == nil ||
			ctx.Err() == nil && !(bounded && time.Now().After(deadline)) {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("redistest: gave up waiting: %w (%w)", last, context.Cause(ctx))
		}
	}
}
