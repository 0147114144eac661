package locktest_test

import (
	"context"
	"encoding/json"
	"net"
	"net/rpc"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
)

// server offers a table over TCP, so that other processes can use it, too.
type server struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu    sync.Mutex // guards conns
	conns []net.Conn
}

// Ask is a request over net/rpc.
type Ask struct {
	Name, Owner string
	Lease       time.Duration
	From        int64 // for Take
}

// service is the table in the form that net/rpc needs.
type service struct {
	system system
	life   context.Context // ends with the server
}

func (s *service) Acquire(q Ask, a *Answer) (err error) {
	*a, err = s.system.acquire(s.life, q.Name, q.Owner, q.Lease)
	return err
}

func (s *service) Renew(q Ask, held *bool) (err error) {
	*held, err = s.system.renew(s.life, q.Name, q.Owner, q.Lease)
	return err
}

func (s *service) Release(q Ask, held *bool) (err error) {
	*held, err = s.system.release(s.life, q.Name, q.Owner)
	return err
}

func (s *service) Take(q Ask, a *Answer) (err error) {
	*a, err = s.system.take(s.life, q.Name, q.Owner, q.From, q.Lease)
	return err
}

func (s *service) Wait(q Ask, _ *bool) error { return s.system.wait(s.life, q.Name) }

func startServer(t *testing.T, s system) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	life, end := context.WithCancel(context.Background())
	r := rpc.NewServer()
	if err := r.RegisterName("Table", &service{s, life}); err != nil {
		t.Fatal(err)
	}
	v := &server{listener: listener}
	v.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			v.mu.Lock()
			v.conns = append(v.conns, conn)
			v.mu.Unlock()
			v.serving.Go(func() { r.ServeConn(conn) }) // returns when all its calls have returned
		}
	})
	t.Cleanup(func() {
		end()
		listener.Close()
		v.mu.Lock()
		for _, conn := range v.conns {
			conn.Close()
		}
		v.mu.Unlock()
		v.serving.Wait()
	})
	return v
}

func (v *server) addr() string { return v.listener.Addr().String() }

// remote is the system on the other end of a connection.
type remote struct{ client *rpc.Client }

func dial(addr string) (*remote, error) {
	client, err := rpc.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &remote{client}, nil
}

func (r *remote) call(ctx context.Context, method string, q Ask, reply any) error {
	call := r.client.Go("Table."+method, q, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return call.Error
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *remote) acquire(
	ctx context.Context, name, owner string, lease time.Duration,
) (Answer, error) {
	return r.answer(ctx, "Acquire", Ask{Name: name, Owner: owner, Lease: lease})
}

func (r *remote) take(
	ctx context.Context, name, owner string, from int64, lease time.Duration,
) (Answer, error) {
	return r.answer(ctx, "Take", Ask{Name: name, Owner: owner, Lease: lease, From: from})
}

func (r *remote) answer(ctx context.Context, method string, q Ask) (Answer, error) {
	a := new(Answer)
	if err := r.call(ctx, method, q, a); err != nil {
		return Answer{}, err
	}
	return *a, nil
}

func (r *remote) renew(ctx context.Context, name, owner string, lease time.Duration) (bool, error) {
	return r.held(ctx, "Renew", Ask{Name: name, Owner: owner, Lease: lease})
}

func (r *remote) release(ctx context.Context, name, owner string) (bool, error) {
	return r.held(ctx, "Release", Ask{Name: name, Owner: owner})
}

func (r *remote) held(ctx context.Context, method string, q Ask) (bool, error) {
	held := new(bool)
	if err := r.call(ctx, method, q, held); err != nil {
		return false, err
	}
	return *held, nil
}

func (r *remote) wait(ctx context.Context, name string) error {
	return r.call(ctx, "Wait", Ask{Name: name}, new(bool))
}

// process is the configuration of a child process.
type process struct {
	Addr   string
	Lease  time.Duration
	Mutant string // one of processMutants, or ""
}

// openProcess opens a locker for locktest.Main.
func openProcess(config string) (lock.Locker, func(), error) {
	var p process
	if err := json.Unmarshal([]byte(config), &p); err != nil {
		return nil, nil, err
	}
	r, err := dial(p.Addr)
	if err != nil {
		return nil, nil, err
	}
	l, locker := newReference(r, p.Lease), lock.Locker(nil)
	locker = l
	if wrap := processMutants[p.Mutant].child; wrap != nil {
		locker = wrap(l)
	}
	return locker, func() { l.Close(); r.client.Close() }, nil
}

// serverFleet returns a fleet of reference lockers, each with its own connection to a table.
func serverFleet(t *testing.T, mutant string, lease time.Duration) locktest.Fleet {
	tab := newTable()
	var s system = tab
	if wrap := processMutants[mutant].server; wrap != nil {
		s = wrap(tab)
	}
	v := startServer(t, s)
	f := locktest.Fleet{Lease: lease, Fenced: true, Reentrant: true, Steal: tab.steal}
	for i := range 3 {
		r, err := dial(v.addr())
		if err != nil {
			t.Fatal(err)
		}
		line := &line{system: r}
		l := newReference(line, lease)
		t.Cleanup(func() { l.Close(); r.client.Close() })
		f.Lockers = append(f.Lockers, l)
		if i == 0 {
			f.Cut, f.LoseReply = line.Cut, line.LoseReply
		}
	}
	config, err := json.Marshal(process{v.addr(), lease, mutant})
	if err != nil {
		t.Fatal(err)
	}
	f.Process = string(config)
	return f
}

// TestSuiteOverTCP runs the suite as users of the package run it: in real time, and with processes.
func TestSuiteOverTCP(t *testing.T) {
	locktest.Run(t, func(t *testing.T) locktest.Fleet {
		t.Parallel()
		var open func(lease time.Duration) locktest.Fleet
		open = func(lease time.Duration) locktest.Fleet {
			f := serverFleet(t, "", lease)
			f.Longer = open
			return f
		}
		return open(lease)
	})
}
