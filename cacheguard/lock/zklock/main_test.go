package zklock_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
	"github.com/cacheguard/cacheguard/cacheguard/lock/zklock"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// TestMain fails if a locker and its connection, both closed, leave a goroutine behind.
func TestMain(m *testing.M) {
	zktest.SuppressRace()
	goleak.VerifyTestMain(runner{zktest.Wrap(m)})
}

// runner makes this process a holder of locks if a test has started it as one.
type runner struct{ tests zktest.Runner }

func (r runner) Run() int { return locktest.Main(r.tests, openSite) }

// site contains the address and the options of a locker. It is sent to child processes as text.
type site struct {
	Addr    string
	Options zklock.Options
}

// config returns the site as text.
func (s site) config() string {
	s.Options.Logger = nil
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func openSite(config string) (lock.Locker, func(), error) {
	var s site
	if err := json.Unmarshal([]byte(config), &s); err != nil {
		return nil, nil, err
	}
	conn, err := connect(s.Addr, s.Options.Lease)
	if err != nil {
		return nil, nil, err
	}
	settle(conn)
	l, err := zklock.New(conn, s.Options)
	if err != nil {
		return nil, nil, err
	}
	return l, func() { _ = l.Close(); conn.Close() }, nil
}

// connect makes a connection whose session ends after a lease. addrs has the addresses, separated
// by commas. They are passed twice, because go-zookeeper waits for a second before it tries the
// same address again.
func connect(addrs string, lease time.Duration) (*zk.Conn, error) {
	conn, _, err := zk.Connect(strings.Split(addrs+","+addrs, ","), lease, zk.WithLogger(silent{}))
	return conn, err
}

// settle waits for the first reply on a connection, so that a test's counts and times begin after
// it.
func settle(conn *zk.Conn) {
	_, _, _ = conn.Exists("/")
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// process is a locker with its own session, like that of a separate process.
type process struct {
	*zklock.Locker
	conn *zk.Conn
}

// open returns a process. It ends with the test.
func open(t *testing.T, addr string, opts zklock.Options) *process {
	t.Helper()
	session := opts.Lease
	if session == 0 {
		session = 4 * time.Second
	}
	return openFor(t, addr, session, opts)
}

// openFor is open with another session timeout than Lease.
func openFor(
	t *testing.T, addr string, session time.Duration, opts zklock.Options,
) *process {
	t.Helper()
	conn, err := connect(addr, session)
	if err != nil {
		t.Fatal(err)
	}
	settle(conn)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if opts.OpTimeout == 0 && opts.Lease >= 20*time.Second {
		opts.OpTimeout = min(opts.Lease, time.Minute) // long enough for a busy machine
	}
	l, err := zklock.New(conn, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(); conn.Close() })
	return &process{l, conn}
}

// line returns the calls in the queue of a name, the holder first.
func (p *process) line(t *testing.T, prefix, name string) []string {
	t.Helper()
	nodes, _, err := p.conn.Children(zklock.DirOf(prefix, name))
	if err != nil && err != zk.ErrNoNode {
		t.Fatal(err)
	}
	slices.SortFunc(nodes, func(a, b string) int {
		first, _ := zklock.TurnOf(a)
		second, _ := zklock.TurnOf(b)
		return int(first - second)
	})
	return nodes
}

// acquireShort gets the lock of a name with a short lease, for tests that wait for the lease's end.
// If the machine is so busy that ZooKeeper's replies are too slow for this lease, it tries again
// with a longer one. open opens a process with a lease. The results are the holder, its lock, and
// its node.
func acquireShort(
	t *testing.T, operator *process, prefix, name string, open func(lease time.Duration) *process,
) (*process, lock.Lock, string) {
	t.Helper()
	for lease := 3 * time.Second; ; lease *= 2 {
		p := open(lease)
		held, err := p.Lock(testContext(t), name)
		line := operator.line(t, prefix, name)
		switch {
		case err == nil && len(line) > 0:
			return p, held, zklock.DirOf(prefix, name) + "/" + line[0]
		case lease > 40*time.Second:
			t.Fatalf("with a lease of %v Lock returned %v, and in line are %v", lease, err, line)
		}
		t.Logf("tried again: with a lease of %v Lock returned %v, and in line are %v", lease, err,
			line)
	}
}

// patience is the time limit for events that must happen.
const patience = 60 * time.Second

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// acquire gets the lock of a name.
func acquire(t *testing.T, l lock.Locker, name string) lock.Lock {
	t.Helper()
	held, err := l.Lock(testContext(t), name)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return held
}
