package stage

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/internal/zktest"
)

// A request may leave the line after the next one has seen it there, and before that one watches
// it. The next request then looks again at once, instead of waiting for ever.
func TestPredecessorThatHasLeft(t *testing.T) {
	conn, _, err := zk.Connect([]string{zktest.Shared(t).Addr()}, time.Minute,
		zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h := newQueue(&Replica{ZooKeeper: conn}, "left", watchBefore)
	h.node = "me"
	changed, err := h.watch(h, []string{"gone", "me"})
	if err != nil {
		t.Fatal(err)
	}
	<-changed
	if _, err := conn.Create(h.dir, nil, zk.FlagPersistent,
		zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	defer conn.Delete(h.dir, -1)
	if got, err := h.try(t.Context()); got || err == nil { // its session has ended
		t.Errorf("a request that isn't in the line got %v, %v", got, err)
	}
}
