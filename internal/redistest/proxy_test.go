package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/waittest"
)

func TestCutClosesAllAndTakesNew(t *testing.T) {
	_, p := sharedProxy(t)
	var wires []*wire
	for range 5 {
		wires = append(wires, answered(t, p))
	}
	p.Cut()
	for _, w := range wires {
		w.wantEnd()
	}
	answered(t, p)
}

func TestBlackholeKeepsEverythingUntilItHeals(t *testing.T) {
	s, p := sharedProxy(t)
	old := dial(t, p.Addr())
	old.send("SUBSCRIBE c")
	old.want(confirmation("*", "subscribe", "c", 1))
	busy := answered(t, p)

	p.Blackhole(true)
	p.Blackhole(true)
	fresh := dial(t, p.Addr())
	fresh.send("SET fresh v")
	busy.send("SET busy v")
	publisher := dial(t, s.Addr())
	publisher.send("PUBLISH c hi")
	publisher.want(":1\r\n")
	for _, w := range []*wire{old, busy, fresh} {
		w.wantSilence()
	}
	wantValue(t, s, "fresh", "")
	wantValue(t, s, "busy", "")

	p.Blackhole(false)
	p.Blackhole(false)
	old.want("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n")
	busy.want("+OK\r\n")
	fresh.want("+OK\r\n")
}

// A proxy is idle when no reply is on its way, whatever became of the replies that never come.
func TestIdle(t *testing.T) {
	_, p := sharedProxy(t)
	gate := make(chan struct{})
	kept := p.DelayReply(HasKey("kept"), gate)
	p.DropReply(HasKey("lost"), GoOn)
	p.DropCommand(HasKey("dropped"), GoOn)
	w := dial(t, p.Addr())
	w.send("SET lost v", "SET dropped v", "SUBSCRIBE c d", "UNSUBSCRIBE c d", "SET kept v")
	waittest.Next(t, "the fault", kept.Struck())
	if p.Idle() {
		t.Error("a reply is on its way")
	}
	close(gate)
	waittest.Until(t, "all replies", p.Idle)

	w.send("BLPOP list 0")
	waittest.Until(t, "the command", func() bool { return p.Counts()["BLPOP"] == 1 })
	if p.Idle() {
		t.Error("a command has no reply yet")
	}
	p.Cut()
	if !p.Idle() {
		t.Error("a reply is on its way to a client that is gone")
	}
}

// What went through before the blackhole is not caught in it.
func TestBlackholeSparesWhatPassedBefore(t *testing.T) {
	s, p := sharedProxy(t)
	p.DropCommand(func(c Command) bool {
		p.Blackhole(HasKey("b")(c))
		return false
	})
	w := dial(t, p.Addr())
	w.send("SET a 1", "SET b 2")
	waittest.Until(t, "the first command", func() bool { return value(t, s, "a") == "1" })
	wantValue(t, s, "b", "")
	p.Blackhole(false)
	w.want("+OK\r\n", "+OK\r\n")
}

func TestClientsThatLeaveAreForgotten(t *testing.T) {
	s, p := sharedProxy(t)
	p.DropReply(HasKey("lost"))
	p.DropCommand(HasKey("dropped"))
	for _, command := range []string{
		"SET k v", "SET lost v", "SET dropped v", "BLPOP list 0", "SUBSCRIBE c",
	} {
		w := dial(t, p.Addr())
		w.send(command)
		if err := w.conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, "the commands", func() bool {
		return p.Counts()["SET"] == 2 && p.Counts()["BLPOP"] == 1 && p.Counts()["SUBSCRIBE"] == 1
	})

	waittest.Until(t, "the end of the connections", func() bool { return p.Links() == 0 })
	wantValue(t, s, "k", "v")
	wantValue(t, s, "lost", "v")
}

func TestCutInsideABlackhole(t *testing.T) {
	s, p := sharedProxy(t)
	w := answered(t, p)
	f := p.DropReply(IsCommand("SET"))
	p.Blackhole(true)
	w.send("SET k v")
	waittest.Until(t, "the command", func() bool { return len(p.armed()) == 0 })
	p.Cut()
	w.wantEnd()
	p.Blackhole(false)
	wantValue(t, s, "k", "")
	if !f.Disarm() {
		t.Error("a fault struck in the blackhole")
	}
}

func TestRefuse(t *testing.T) {
	_, p := sharedProxy(t)
	w := answered(t, p)
	for range 2 {
		if err := p.Refuse(true); err != nil {
			t.Fatal(err)
		}
		if _, err := net.Dial("tcp", p.Addr()); err == nil {
			t.Fatal("not refused")
		}
	}
	w.send("PING")
	w.want("+PONG\r\n")
	for range 2 {
		if err := p.Refuse(false); err != nil {
			t.Fatal(err)
		}
	}
	answered(t, p)
}

func TestCloseEndsEverything(t *testing.T) {
	s := Shared(t)
	p, err := NewProxy(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	never := make(chan struct{})
	delayed := p.DelayCommand(HasKey("a"), never)
	kept := p.DelayReply(HasKey("b"), never)
	lost := p.DropReply(HasKey("c"))
	var wires []*wire
	for _, command := range []string{"SET a 1", "SET b 2", "SET c 3", "BLPOP list 0"} {
		w := dial(t, p.Addr())
		w.send(command)
		wires = append(wires, w)
	}
	for _, f := range []*Fault{delayed, kept, lost} {
		waittest.Next(t, "a fault", f.Struck())
	}
	p.Blackhole(true)
	wires = append(wires, dial(t, p.Addr()))
	for range 2 {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	for _, w := range wires {
		w.wantEnd()
	}
	if _, err := net.Dial("tcp", p.Addr()); err == nil {
		t.Error("a closed proxy accepts")
	}
	if err := p.Refuse(false); !errors.Is(err, ErrStopped) {
		t.Errorf("Refuse after Close: %v", err)
	}
}

func TestCloseReportsABreachOfProtocol(t *testing.T) {
	s := Shared(t)
	p, err := NewProxy(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	w := dial(t, p.Addr())
	if _, err := io.WriteString(w.conn, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	w.wantEnd()
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "PING") {
		t.Errorf("Close: %v", err)
	}
}

func TestProxyWithoutAServer(t *testing.T) {
	s := Start(t)
	p := StartProxy(t, s.Addr())
	w := answered(t, p)
	s.Kill()
	w.wantEnd()
	dial(t, p.Addr()).wantEnd()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	answered(t, p)
}

func TestCounts(t *testing.T) {
	_, p := sharedProxy(t)
	p.DropCommand(HasKey("dropped"), GoOn)
	w := dial(t, p.Addr())
	w.send("get a", "GET b", "SET dropped v", "PING")
	w.want("$-1\r\n", "$-1\r\n", "+PONG\r\n")
	if got := fmt.Sprint(p.Counts()); got != "map[GET:2 PING:1]" {
		t.Error(got)
	}
	p.ResetCounts()
	if got := p.Counts(); len(got) != 0 {
		t.Error(got)
	}
}

// A client may write a whole pipeline before it reads the first reply.
func TestLongPipeline(t *testing.T) {
	_, p := sharedProxy(t)
	w := dial(t, p.Addr())
	const n = 20_000
	w.send("SET k " + strings.Repeat("x", 1000))
	w.want("+OK\r\n")
	w.send(strings.Split(strings.Repeat("GET k\n", n), "\n")[:n]...) // 20 MB of replies
	reply := "$1000\r\n" + strings.Repeat("x", 1000) + "\r\n"
	for range n {
		w.want(reply)
	}
}

func TestBigValuesStream(t *testing.T) {
	s, p := sharedProxy(t)
	ctx := testContext(t)
	rdb := newClient(t, p.Addr(), func(o *redis.Options) {
		o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute // a busy machine takes seconds
	})
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	if err := rdb.Set(ctx, "k", big, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := rdb.Get(ctx, "k").Bytes(); err != nil || !bytes.Equal(got, big) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}

	// On its way back a value of any size takes no memory.
	if err := newClient(t, s.Addr()).SetRange(ctx, "huge", 64<<20-1, "x").Err(); err != nil {
		t.Fatal(err)
	}
	w := dial(t, p.Addr())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w.send("GET huge")
	if err := copyReply(io.Discard, w.in); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
		t.Errorf("%d bytes allocated for a reply of 64 MiB", grown)
	}
}

// Everybody at once, with pipelines, transactions and subscribers: each gets
// its own replies.
func TestManyClients(t *testing.T) {
	_, p := sharedProxy(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	rdb := newClient(t, p.Addr(), func(o *redis.Options) { o.PoolSize = 8; o.MaxRetries = 3 })
	subscription := rdb.Subscribe(ctx, "c")
	defer subscription.Close()
	if _, err := subscription.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	const clients, rounds = 16, 50
	var work sync.WaitGroup
	for i := range clients {
		work.Go(func() {
			for round := range rounds {
				if err := exchangeOwn(t, rdb, fmt.Sprintf("%d/%d", i, round)); err != nil {
					t.Errorf("client %d, round %d: %v", i, round, err)
					return
				}
			}
		})
	}
	work.Go(func() { // faults meanwhile, on a connection that isn't theirs
		w := dial(t, p.Addr())
		for range rounds {
			f := p.DropReply(HasKey("nobody"), GoOn)
			w.send("GET nobody", "PING")
			w.want("+PONG\r\n")
			waittest.Next(t, "a fault", f.Struck())
		}
	})
	for range clients * rounds {
		if _, err := subscription.ReceiveMessage(ctx); err != nil {
			t.Error(err)
			break
		}
	}
	work.Wait()
}

func TestPredicatesRunOneAtATime(t *testing.T) {
	_, p := sharedProxy(t)
	var inside atomic.Bool
	p.DropCommand(func(Command) bool {
		if inside.Swap(true) {
			t.Error("two at a time")
		}
		runtime.Gosched()
		inside.Store(false)
		return false
	})
	rdb := newClient(t, p.Addr())
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for range 100 {
				if err := rdb.Ping(t.Context()).Err(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
}

func exchangeOwn(t *testing.T, rdb *redis.Client, own string) error {
	ctx := t.Context()
	pipe := rdb.Pipeline()
	if len(own)%2 == 0 {
		pipe = rdb.TxPipeline()
	}
	pipe.Set(ctx, own, own, 0)
	pipe.Publish(ctx, "c", own)
	get := pipe.Get(ctx, own)
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	if got := get.Val(); got != own {
		return fmt.Errorf("got %q, want %q", got, own)
	}
	if got, err := rdb.Get(ctx, own).Result(); got != own {
		return fmt.Errorf("got %q, %w, want %q", got, err, own)
	}
	return nil
}

func BenchmarkGet(b *testing.B) {
	s, err := NewServer()
	if err != nil {
		b.Skip(err)
	}
	defer s.Stop()
	p, err := NewProxy(s.Addr())
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	for _, way := range []struct{ name, addr string }{{"direct", s.Addr()}, {"proxy", p.Addr()}} {
		b.Run(way.name, func(b *testing.B) {
			rdb := redis.NewClient(&redis.Options{Addr: way.addr})
			defer rdb.Close()
			for b.Loop() {
				if err := rdb.Get(b.Context(), "k").Err(); err != redis.Nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What a client sent is carried out late, also when it has given up.
func TestSlowIsLateAndNotLost(t *testing.T) {
	const late = 100 * time.Millisecond
	s, p := sharedProxy(t)
	w := answered(t, p)
	p.Slow(late)
	began := time.Now()
	w.send("SET k v")
	if err := w.conn.Close(); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the command is carried out", func() bool { return value(t, s, "k") == "v" })
	if took := time.Since(began); took < late {
		t.Errorf("a command was carried out after %v, want %v at least", took, late)
	}
	p.Slow(0)
	answered(t, p)
}
