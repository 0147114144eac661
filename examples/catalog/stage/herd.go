package stage

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
)

// herd is a queue in ZooKeeper. Each request adds a node. The node gets a number and ends with the
// session. The request with the lowest number has the lock. Waiting requests watch the queue.
//
// Its flaw: each change of the queue wakes all waiting requests, so for n requests the n locks cost
// n * n / 2 wake-ups.
type herd struct {
	*Replica
	dir, node string
	watch     func(h *herd, nodes []string) (<-chan zk.Event, error)
	changed   <-chan zk.Event
}

func newQueue(r *Replica, name string, watch func(*herd, []string) (<-chan zk.Event, error)) *herd {
	return &herd{Replica: r, dir: queuePath(name), watch: watch}
}

// watchAll watches the whole queue.
func watchAll(h *herd, _ []string) (<-chan zk.Event, error) {
	_, _, changed, err := h.ZooKeeper.ChildrenW(h.dir)
	return changed, err
}

// watchBefore watches only the node directly before this request's node, so a request that leaves
// wakes only one other request.
func watchBefore(h *herd, nodes []string) (<-chan zk.Event, error) {
	_, _, changed, err := h.ZooKeeper.GetW(h.dir + "/" + nodes[slices.Index(nodes, h.node)-1])
	if err == zk.ErrNoNode { // it has left in the meantime, and nothing would end the wait
		gone := make(chan zk.Event)
		close(gone)
		return gone, nil
	}
	return changed, err
}

func (h *herd) try(context.Context) (bool, error) {
	if h.node == "" {
		_, err := h.ZooKeeper.Create(h.dir, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		if err != nil && err != zk.ErrNodeExists {
			return false, err
		}
		path, err := h.ZooKeeper.Create(h.dir+"/", nil, zk.FlagEphemeralSequential,
			zk.WorldACL(zk.PermAll))
		if err != nil {
			return false, err
		}
		h.node = path[strings.LastIndexByte(path, '/')+1:]
	}
	nodes, _, err := h.ZooKeeper.Children(h.dir)
	if err != nil {
		return false, err
	}
	slices.Sort(nodes)
	switch {
	case !slices.Contains(nodes, h.node):
		return false, zk.ErrSessionExpired
	case nodes[0] == h.node:
		return true, nil
	}
	h.changed, err = h.watch(h, nodes)
	return false, err
}

// wait waits for an event of the watch.
func (h *herd) wait(ctx context.Context) error {
	if err := h.At(ctx, Wait); err != nil {
		return err
	}
	select {
	case <-h.changed:
		return h.At(ctx, Announced)
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), h.leave(ctx))
	}
}

// leave takes the request out of the queue.
func (h *herd) leave(context.Context) error {
	if h.node == "" {
		return nil
	}
	return h.ZooKeeper.Delete(h.dir+"/"+h.node, -1)
}

func (h *herd) unlock(ctx context.Context) error {
	if err := h.leave(ctx); err != nil {
		return err
	}
	return h.At(ctx, Unlocked)
}
