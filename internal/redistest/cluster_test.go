package redistest

import (
	"context"
	"errors"
	"testing"
)

func waiting(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), joinTimeout)
	t.Cleanup(cancel)
	return ctx
}

func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	c, ctx := StartCluster(t, 3, 1), waiting(t)
	const key = "{a}"
	old, err := c.Master(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	replica, err := c.Replica(ctx, old)
	if err != nil {
		t.Fatal(err)
	}
	c.Node(old).Kill()
	master, err := c.AwaitFailover(ctx, key, old)
	if err != nil {
		t.Fatal(err)
	}
	if master != replica {
		t.Errorf("%s is master after the end of %s; want its replica %s", master, old, replica)
	}
	if err := c.Node(old).Restart(); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitWhole(ctx); err != nil {
		t.Fatal(err)
	}
	if replica, err = c.Replica(ctx, master); err != nil || replica != old {
		t.Errorf("the replica is %s, %v after the old master's return; want %s", replica, err, old)
	}
	if err := c.Failover(ctx, key, replica); err != nil {
		t.Fatal(err)
	}
	if master, err = c.Master(ctx, key); err != nil || master != replica {
		t.Errorf("the master is %s, %v after a failover by hand; want %s", master, err, replica)
	}
}

// Nodes that don't answer for a while, as on a busy machine, are asked again.
func TestClusterIsAskedForItsMasterAgain(t *testing.T) {
	t.Parallel()
	c, ctx := StartCluster(t, 2, 0), waiting(t)
	const key = "{a}"
	want, err := c.Master(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range c.Addrs() {
		if err := c.Node(addr).Pause(); errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	brief, cancel := context.WithTimeout(ctx, 4*soon)
	defer cancel()
	if master, err := c.Master(brief, key); err == nil || brief.Err() == nil {
		t.Errorf("got %q, %v from silent nodes; ctx has ended with %v", master, err, brief.Err())
	}
	for _, addr := range c.Addrs() {
		if err := c.Node(addr).Resume(); err != nil {
			t.Fatal(err)
		}
	}
	if master, err := c.Master(ctx, key); err != nil || master != want {
		t.Errorf("the master is %q, %v; want %s", master, err, want)
	}
}

func TestClusterMovesSlot(t *testing.T) {
	t.Parallel()
	c, ctx := StartCluster(t, 2, 0), waiting(t)
	const key = "{a}"
	from, err := c.Master(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	to := c.Addrs()[0]
	if to == from {
		to = c.Addrs()[1]
	}
	if _, err := ask(ctx, c.Node(from), "SET", key, "v"); err != nil {
		t.Fatal(err)
	}
	m, err := c.BeginMove(ctx, key, to)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := m.Keys(ctx, 10); n != 1 || err != nil {
		t.Fatalf("%d keys were moved, %v; want 1", n, err)
	}
	if err := m.End(ctx); err != nil {
		t.Fatal(err)
	}
	if v, err := ask(ctx, c.Node(to), "GET", key); v != "v" || err != nil {
		t.Errorf("the new master has %v, %v", v, err)
	}
}
