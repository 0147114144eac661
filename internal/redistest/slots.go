package redistest

import (
	"context"
	"fmt"
	"strconv"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// Move is a slot on its way from one master of a Cluster to another. During the move the old master
// answers with ASK for keys that it no longer has. If a master has only some keys of a command, it
// answers TRYAGAIN; before Redis 7.0.3 the old master answers with ASK instead. The other nodes
// don't know of the move.
type Move struct {
	c        *Cluster
	key      string
	slot     string // of the key
	from, to *Server
}

// BeginMove begins to move the slot of a key to the master at an address.
func (c *Cluster) BeginMove(ctx context.Context, key, to string) (*Move, error) {
	from, err := c.Master(ctx, key)
	if err != nil {
		return nil, err
	}
	m := &Move{c: c, key: key, from: c.Node(from), to: c.Node(to)}
	slot, err := keySlot(ctx, m.from, key)
	if err != nil {
		return nil, err
	}
	m.slot = strconv.FormatInt(slot, 10)
	fromID, err := nodeID(ctx, m.from)
	if err != nil {
		return nil, err
	}
	toID, err := nodeID(ctx, m.to)
	if err != nil {
		return nil, err
	}
	if _, err := ask(ctx, m.to, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", fromID); err != nil {
		return nil, err
	}
	_, err = ask(ctx, m.from, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", toID)
	return m, err
}

// Keys moves up to the given number of the slot's keys, and returns how many it has moved.
func (m *Move) Keys(ctx context.Context, most int) (int, error) {
	reply, err := ask(ctx, m.from, "CLUSTER", "GETKEYSINSLOT", m.slot, strconv.Itoa(most))
	if err != nil {
		return 0, err
	}
	keys, _ := reply.([]any)
	if len(keys) == 0 {
		return 0, nil
	}
	args := []string{
		childproc.Loopback, strconv.Itoa(m.to.Port()), "", "0", "5000", "REPLACE", "KEYS",
	}
	for _, k := range keys {
		args = append(args, fmt.Sprint(k))
	}
	_, err = ask(ctx, m.from, "MIGRATE", args...)
	return len(keys), err
}

// End moves the remaining keys, gives the slot to its new master, and returns when all nodes know
// the new master. Otherwise a replica that doesn't know it and is promoted would take the slot
// back.
func (m *Move) End(ctx context.Context) error {
	// No key is added meanwhile, because the old master answers with ASK for new keys.
	for left := true; left; {
		n, err := m.Keys(ctx, 100)
		if err != nil {
			return err
		}
		left = n > 0
	}
	id, err := nodeID(ctx, m.to)
	if err != nil {
		return err
	}
	// First tell the new master, then the old one. In the other order there would be a moment in
	// which no node has the slot.
	for _, node := range append([]*Server{m.to, m.from}, m.c.answering(ctx)...) {
		role, err := ask(ctx, node, "ROLE")
		if err != nil {
			return err
		}
		if first(role) != "master" { // replicas are not told
			continue
		}
		if _, err := ask(ctx, node, "CLUSTER", "SETSLOT", m.slot, "NODE", id); err != nil {
			return err
		}
	}
	return until(ctx, func() error {
		for _, node := range m.c.answering(ctx) {
			if master, err := masterOf(ctx, node, m.key); err != nil || master != m.to.Addr() {
				return fmt.Errorf("%s has %q as master of slot %s (%v)", node.Addr(), master,
					m.slot, err)
			}
		}
		return nil
	})
}
