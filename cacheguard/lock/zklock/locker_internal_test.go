package zklock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

type silent struct{}

func (silent) Printf(string, ...any) {}

// inside returns a locker whose internals a test reads.
func inside(t *testing.T, addr, prefix string) (*zk.Conn, *Locker) {
	t.Helper()
	conn, _, err := zk.Connect([]string{addr}, time.Minute, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.Exists("/"); err != nil {
		t.Fatal(err)
	}
	l, err := New(conn, Options{Prefix: prefix, Lease: time.Minute, OpTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(); conn.Close() })
	return conn, l
}

// count counts the requests of one kind that have gone through a proxy.
func count(p *zktest.Proxy, op string) int {
	n := 0
	for _, r := range p.Requests() {
		if r.Op == op {
			n++
		}
	}
	return n
}

// In TestALockBeginsWithTimeLeft the reply to a creation takes so long that the lease must count
// from a later request.
func TestALockBeginsWithTimeLeft(t *testing.T) {
	server := zktest.Shared(t)
	proxy := zktest.StartProxy(t, server.Addr())
	_, l := inside(t, proxy.Addr(), "/slow")
	q := l.question("a")
	if err := l.mkdir(context.Background(), q.dir); err != nil {
		t.Fatal(err)
	}
	proxy.Blackhole(true)
	lifted := make(chan time.Time, 1)
	time.AfterFunc(l.opts.Lease/15, func() { // more than the limit of Lease/24
		lifted <- time.Now()
		proxy.Blackhole(false)
	})
	if before, err := q.turn(context.Background()); before != "" || err != nil {
		t.Fatal(before, err)
	}
	// If the machine is busy, a sync can be too slow as well, so there may be several.
	if end := <-lifted; count(proxy, "sync") == 0 || q.alive.Before(end) {
		t.Errorf("%d syncs; what counts is a question from %v before the end of the blackhole",
			count(proxy, "sync"), end.Sub(q.alive))
	}
	if err := q.release(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestGivenUpWaitsLeaveOneWatch waits again and again for the node of another call.
func TestGivenUpWaitsLeaveOneWatch(t *testing.T) {
	server := zktest.Shared(t)
	proxy := zktest.StartProxy(t, server.Addr())
	conn, l := inside(t, proxy.Addr(), "/impatient")
	q := l.question("a")
	if before, err := q.turn(context.Background()); before != "" || err != nil {
		t.Fatal(before, err)
	}
	node := q.node
	q = l.question("a")
	if before, err := q.turn(context.Background()); before != node || err != nil {
		t.Fatal(before, err)
	}
	proxy.Reset()
	for i := range 10 {
		ctx, cancel := context.WithCancel(context.Background())
		if i == 0 {
			go func() {
				waittest.Until(t, "a watch", func() bool {
					return l.watches.on(q.dir+"/"+node) != nil
				})
				cancel()
			}()
		} else {
			cancel()
		}
		if err := q.gone(ctx, node); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	// Its reply comes after the replies to all earlier requests.
	if _, _, err := conn.Exists("/"); err != nil {
		t.Fatal(err)
	}
	if watched := count(proxy, "getData"); watched != 1 {
		t.Errorf("ten waits for one node have set %d watches", watched)
	}
	if err := conn.Delete(q.dir+"/"+node, -1); err != nil {
		t.Fatal(err)
	}
	if err := q.gone(context.Background(), node); err != nil {
		t.Error(err)
	}
	other := make(chan zk.Event)
	l.watches.add("/other", other)
	if len(l.watches.m) != 1 || l.watches.on("/other") != other {
		t.Errorf("there are watches that are over: %v", l.watches.m)
	}
}

// In TestTidyWaitsForACreationUnderWay a node is created after tidy has already looked for it.
func TestTidyWaitsForACreationUnderWay(t *testing.T) {
	server := zktest.Shared(t)
	proxy := zktest.StartProxy(t, server.Addr())
	conn, l := inside(t, proxy.Addr(), "/late")
	q := l.question("a")
	if err := l.mkdir(context.Background(), q.dir); err != nil {
		t.Fatal(err)
	}
	creating := make(chan answer[string], 1)
	q.creating = creating
	proxy.Reset()
	done := l.tidy(q)
	waittest.Until(t, "it to look twice", func() bool { return count(proxy, "getChildren") >= 2 })
	node, err := conn.Create(q.dir+"/"+q.call, nil, zk.FlagEphemeralSequential,
		zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	creating <- answer[string]{value: node}
	<-done
	if there, _, err := conn.Exists(node); there || err != nil {
		t.Errorf("it is left: %v, %v", there, err)
	}
}

// TestALeaseCountsFromTheAnswerBefore checks the rule that is needed because a follower reports
// sessions to its leader later. See held.go.
func TestALeaseCountsFromTheAnswerBefore(t *testing.T) {
	server := zktest.Shared(t)
	_, l := inside(t, server.Addr(), "/verify")
	ctx, q := context.Background(), l.question("a")
	began := time.Now()
	if before, err := q.turn(ctx); before != "" || err != nil {
		t.Fatal(before, err)
	}
	if q.alive.Before(began) {
		t.Errorf("it counts from %v before it began", began.Sub(q.alive))
	}
	for range 3 {
		answered := q.alive
		asked := time.Now()
		until, held, err := q.verify(ctx)
		if err != nil || !held {
			t.Fatal(held, err)
		}
		if want := answered.Add(l.opts.Lease); !until.Equal(want) {
			t.Errorf("it is held until %v after the answer before, want %v", until.Sub(answered),
				l.opts.Lease)
		}
		if !q.alive.After(asked) && !q.alive.Equal(asked) || q.alive.After(time.Now()) {
			t.Errorf("the next counts from %v after the question", q.alive.Sub(asked))
		}
	}
	if err := q.release(ctx); err != nil {
		t.Fatal(err)
	}
	if _, held, err := q.verify(ctx); held || err != nil {
		t.Errorf("a node that is gone: %v, %v", held, err)
	}
}
