package redistest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/waittest"
)

func TestDropReplyAfterTheCommandWasCarriedOut(t *testing.T) {
	s, p := sharedProxy(t)
	lost := p.DropReply(All(IsCommand("SET"), HasKey("k")))
	w := dial(t, p.Addr())

	w.send("SET other v")
	w.want("+OK\r\n")
	w.send("SET k v", "SET behind v")
	waittest.Next(t, "the fault", lost.Struck())
	wantValue(t, s, "k", "v")
	w.wantSilence()
	if got := lost.Command().String(); got != `SET "k" "v"` {
		t.Errorf("struck %s", got)
	}

	// Only the way back is lost, and only on that connection.
	w.send("SET later v")
	waittest.Until(t, "the later command", func() bool { return value(t, s, "later") == "v" })
	w.wantSilence()
	next := dial(t, p.Addr())
	next.send("SET k w")
	next.want("+OK\r\n")
}

// What this fault is for: go-redis retries, finds its own token and reports
// that somebody else has the lease.
func TestGoRedisMistakesItsOwnLease(t *testing.T) {
	s, p := sharedProxy(t)
	// The connection ends, so that the client needs no short timeout. A busy machine could exceed
	// such a timeout with the retry, too.
	lost := p.DropReply(IsCommand("SET"), Hangup)
	rdb := newClient(t, p.Addr(), func(o *redis.Options) { o.MaxRetries = 1 })
	got, err := rdb.SetNX(testContext(t), "lease", "mine", time.Minute).Result()
	if err != nil || got {
		t.Errorf("SetNX: %v, %v", got, err)
	}
	waittest.Next(t, "the fault", lost.Struck())
	wantValue(t, s, "lease", "mine")
	if n := p.Counts()["SET"]; n != 2 {
		t.Errorf("%d SETs went through", n)
	}
}

func TestDropReplyWithWhatThen(t *testing.T) {
	s, p := sharedProxy(t)

	p.DropReply(HasKey("b"), GoOn)
	w := dial(t, p.Addr())
	w.send("SET a 1", "APPEND b 22", "APPEND c 333")
	w.want("+OK\r\n", ":3\r\n")
	wantValue(t, s, "b", "22")

	cut := p.DropReply(HasKey("d"), Hangup)
	w.send("SET a 1", "SET d 4")
	w.want("+OK\r\n")
	w.wantEnd()
	waittest.Next(t, "the fault", cut.Struck())
	wantValue(t, s, "d", "4")
}

func TestDropCommandNeverArrives(t *testing.T) {
	s, p := sharedProxy(t)

	lost := p.DropCommand(HasKey("b"))
	w := dial(t, p.Addr())
	w.send("SET a 1", "SET b 2", "SET c 3")
	w.want("+OK\r\n")
	waittest.Next(t, "the fault", lost.Struck())
	w.wantSilence()
	wantValue(t, s, "a", "1")
	wantValue(t, s, "b", "")
	wantValue(t, s, "c", "") // a stream has no holes

	p.DropCommand(HasKey("b"), GoOn)
	w = dial(t, p.Addr())
	w.send("SET b 2", "APPEND c 333")
	w.want(":3\r\n")
	wantValue(t, s, "b", "")

	p.DropCommand(HasKey("b"), Hangup)
	w.send("SET b 2")
	w.wantEnd()
	wantValue(t, s, "b", "")
}

func TestHoldBackAppliesACommandLate(t *testing.T) {
	s, p := sharedProxy(t)
	ctx := testContext(t)
	script := `redis.call('SET', KEYS[1], ARGV[1]) return {1, 'filled'}`

	fill := p.HoldBack(All(IsEval(script), HasKey("k")), Hangup)
	if _, err := fill.Release(ctx); !errors.Is(err, ErrNotStruck) {
		t.Errorf("Release before the fault: %v", err)
	}
	rdb := newClient(t, p.Addr())
	if err := rdb.Eval(ctx, script, []string{"k"}, "old").Err(); err == nil {
		t.Fatal("the script was run")
	}
	waittest.Next(t, "the fault", fill.Struck())
	wantValue(t, s, "k", "")
	if err := rdb.Set(ctx, "k", "new", 0).Err(); err != nil {
		t.Fatal(err)
	}
	reply, err := fill.Release(ctx)
	if array, ok := reply.([]any); err != nil || !ok || len(array) != 2 || array[0] != int64(1) ||
		array[1] != "filled" {
		t.Errorf("reply %v, %v", reply, err)
	}
	wantValue(t, s, "k", "old")
	if n := p.Counts()["EVAL"]; n != 0 {
		t.Errorf("%d EVALs were forwarded", n)
	}
}

func TestHoldBackLeavesTheClientWithoutAnAnswer(t *testing.T) {
	_, p := sharedProxy(t)
	held := p.HoldBack(IsCommand("INCR"))
	w := dial(t, p.Addr())
	w.send("INCR n")
	waittest.Next(t, "the fault", held.Struck())
	w.wantSilence()
	for want := range int64(3) { // as often as one likes
		if got, err := held.Release(testContext(t)); got != want+1 || err != nil {
			t.Errorf("release %d: %v, %v", want, got, err)
		}
	}
}

func TestReleaseReportsWhatTheServerSays(t *testing.T) {
	s := Start(t)
	ctx := testContext(t)
	p := StartProxy(t, s.Addr())
	held := p.HoldBack(IsCommand("INCR"), Hangup)
	w := dial(t, p.Addr())
	w.send("INCR n")
	w.wantEnd()
	if err := newClient(t, s.Addr()).LPush(ctx, "n", 1).Err(); err != nil {
		t.Fatal(err)
	}
	var reply ReplyError
	if got, err := held.Release(ctx); !errors.As(err, &reply) ||
		!strings.HasPrefix(string(reply), "WRONGTYPE") {
		t.Errorf("got %v, %v", got, err)
	}
	s.Kill()
	if got, err := held.Release(ctx); err == nil || errors.As(err, &reply) {
		t.Errorf("without a server: %v, %v", got, err)
	}
}

func TestDuplicateArrivesTwice(t *testing.T) {
	_, p := sharedProxy(t)
	ctx := testContext(t)
	twice := p.Duplicate(IsCommand("INCR"))
	rdb := newClient(t, p.Addr())
	if n, err := rdb.Incr(ctx, "n").Result(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	waittest.Next(t, "the fault", twice.Struck())
	if n, err := rdb.Incr(ctx, "n").Result(); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := twice.Release(ctx); n != int64(3) || err != nil {
		t.Errorf("the duplicate: %v, %v", n, err)
	}
}

func TestDelayCommand(t *testing.T) {
	s, p := sharedProxy(t)
	gate := make(chan struct{})
	delayed := p.DelayCommand(HasKey("b"), gate)
	w := dial(t, p.Addr())
	w.send("SET a 1", "SET b 2", "SET c 3")
	waittest.Next(t, "the fault", delayed.Struck())
	w.want("+OK\r\n")
	w.wantSilence()
	wantValue(t, s, "b", "")
	wantValue(t, s, "c", "")
	close(gate)
	w.want("+OK\r\n", "+OK\r\n")
	wantValue(t, s, "c", "3")
}

func TestDelayedCommandOfAClientThatGaveUpIsCarriedOut(t *testing.T) {
	s, p := sharedProxy(t)
	gate := make(chan struct{})
	delayed := p.DelayCommand(IsCommand("SET"), gate)
	w := dial(t, p.Addr())
	w.send("SET k late")
	waittest.Next(t, "the fault", delayed.Struck())
	if err := w.conn.Close(); err != nil {
		t.Fatal(err)
	}
	wantValue(t, s, "k", "")
	close(gate)
	waittest.Until(t, "the late command", func() bool { return value(t, s, "k") == "late" })
}

func TestDelayReply(t *testing.T) {
	s, p := sharedProxy(t)
	gate := make(chan struct{})
	delayed := p.DelayReply(HasKey("b"), gate)
	w := dial(t, p.Addr())
	w.send("SET a 1", "APPEND b 22", "APPEND c 333")
	waittest.Next(t, "the fault", delayed.Struck())
	wantValue(t, s, "b", "22")
	w.want("+OK\r\n")
	w.wantSilence()
	close(gate)
	w.want(":2\r\n", ":3\r\n")
}

func TestFaultsStrikeOnceAndInOrder(t *testing.T) {
	_, p := sharedProxy(t)
	n := 0
	third := p.DropReply(func(c Command) bool { // counts without a lock
		if c.Name == "INCR" {
			n++
		}
		return n == 3
	}, GoOn)
	first := p.Duplicate(IsCommand("INCR"))
	second := p.Duplicate(IsCommand("INCR"))
	w := dial(t, p.Addr())
	w.send("INCR n", "INCR n", "INCR n", "INCR n")
	w.want(":1\r\n", ":2\r\n", ":4\r\n")
	for _, f := range []*Fault{&first.Fault, &second.Fault, third} {
		waittest.Next(t, "a fault", f.Struck())
	}
}

func TestDisarm(t *testing.T) {
	s, p := sharedProxy(t)
	w := dial(t, p.Addr())

	f := p.DropReply(IsCommand("GET"))
	if got := f.Command().String(); got != "" {
		t.Errorf("command before the strike: %s", got)
	}
	for range 2 { // a second time does no harm
		if !f.Disarm() {
			t.Error("Disarm says that the fault has struck")
		}
	}
	w.send("GET k")
	w.want("$-1\r\n")

	// Even a fault that already waits for the reply can be disarmed.
	f = p.DropReply(IsCommand("BLPOP"))
	w.send("BLPOP list 0")
	waittest.Until(t, "the command", func() bool { return p.Counts()["BLPOP"] == 1 })
	if !f.Disarm() {
		t.Error("Disarm says that the fault has struck")
	}
	push := dial(t, s.Addr())
	push.send("LPUSH list v")
	w.want("*2\r\n$4\r\nlist\r\n$1\r\nv\r\n")

	f = p.DropReply(IsCommand("GET"))
	w.send("GET k")
	waittest.Next(t, "the fault", f.Struck())
	if f.Disarm() {
		t.Error("Disarm denies that the fault has struck")
	}
}

// A fault whose connection ends before the reply comes has not struck: it
// waits for the next command.
func TestFaultOutlivesTheConnection(t *testing.T) {
	s := Start(t)
	p := StartProxy(t, s.Addr())
	f := p.DropReply(IsCommand("BLPOP", "GET"))
	w := dial(t, p.Addr())
	w.send("BLPOP list 0")
	waittest.Until(t, "the command", func() bool { return p.Counts()["BLPOP"] == 1 })
	p.Cut()
	w.wantEnd()

	w = dial(t, p.Addr())
	w.send("BLPOP list 0")
	waittest.Until(t, "the command", func() bool { return p.Counts()["BLPOP"] == 2 })
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	w.wantEnd()
	waittest.Until(t, "the end of the connection", func() bool { return len(p.armed()) == 1 })

	w = dial(t, p.Addr())
	w.send("GET k")
	waittest.Next(t, "the fault", f.Struck())
	if got := f.Command().Name; got != "GET" {
		t.Errorf("struck %s", got)
	}
}
