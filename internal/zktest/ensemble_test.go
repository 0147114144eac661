package zktest

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/internal/waittest"
)

func TestEnsembleOutlivesItsLeader(t *testing.T) {
	e := StartEnsemble(t, 3)
	conn, _, err := zk.Connect(e.Addrs(), 6*session, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	create(t, conn, "/a")
	id, old := conn.SessionID(), e.Leader()
	if old == nil {
		t.Fatal("nobody leads")
	}
	old.Kill()
	waittest.Until(t, "another leader", func() bool {
		leader := e.Leader()
		return leader != nil && leader != old
	})
	waittest.Until(t, "the client", func() bool {
		_, _, err := conn.Exists("/a")
		return err == nil
	})
	if !exists(t, conn, "/a") || conn.SessionID() != id {
		t.Errorf("the node is there: %v; session %x, was %x", exists(t, conn, "/a"),
			conn.SessionID(), id)
	}
	if err := old.Restart(); err != nil {
		t.Fatal(err)
	}
	if leader := e.Leader(); leader == nil || leader == old {
		t.Error("who comes back leads")
	}
}
