package zktest

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"
)

const (
	moment  = 30 * time.Millisecond // for what must not happen
	session = 10 * time.Second      // what clients ask for
	brief   = 6 * time.Second       // a session that ends soon
)

func TestMain(m *testing.M) {
	SuppressRace()
	goleak.VerifyTestMain(Wrap(m))
}

var (
	_ TB     = testing.TB(nil)
	_ Runner = (*testing.M)(nil)
)

type silent struct{}

func (silent) Printf(string, ...any) {}

// client is a connection of go-zookeeper. The address is given twice, so that it connects again
// without a pause.
func client(t *testing.T, addr string, timeout time.Duration) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{addr, addr}, timeout, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// create makes an ephemeral node.
func create(t *testing.T, conn *zk.Conn, path string) {
	t.Helper()
	if _, err := conn.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatalf("create %s: %v", path, err)
	}
}

func exists(t *testing.T, conn *zk.Conn, path string) bool {
	t.Helper()
	there, _, err := conn.Exists(path)
	if err != nil {
		t.Fatalf("exists %s: %v", path, err)
	}
	return there
}
