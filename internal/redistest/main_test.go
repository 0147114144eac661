package redistest

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/cacheguard/cacheguard/internal/waittest"
)

const (
	patience = waittest.Patience
	moment   = 30 * time.Millisecond // for what must not happen
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // dead servers are what this is about
	goleak.VerifyTestMain(Wrap(m))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// sharedProxy is a proxy in front of the shared server.
func sharedProxy(t *testing.T) (*Server, *Proxy) {
	t.Helper()
	s := Shared(t)
	return s, StartProxy(t, s.Addr())
}

// newClient is a go-redis client that gives up soon and doesn't retry.
func newClient(t *testing.T, addr string, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	options := &redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
	}
	for _, f := range change {
		f(options)
	}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// wire is a client connection without a client: what goes over it is seen.
type wire struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dial(t *testing.T, addr string) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// answered is a connection on which there was an answer.
func answered(t *testing.T, p *Proxy) *wire {
	t.Helper()
	w := dial(t, p.Addr())
	w.send("PING")
	w.want("+PONG\r\n")
	return w
}

// send writes commands, given as words, in one go.
func (w *wire) send(commands ...string) {
	w.t.Helper()
	var b bytes.Buffer
	for _, c := range commands {
		words := strings.Fields(c)
		var args [][]byte
		for _, word := range words[1:] {
			args = append(args, []byte(word))
		}
		b.Write(encodeCommand(words[0], args))
	}
	if _, err := w.conn.Write(b.Bytes()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) read(wait time.Duration) (string, error) {
	if err := w.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	var b bytes.Buffer
	err := copyReply(&b, w.in)
	return b.String(), err
}

func (w *wire) want(replies ...string) {
	w.t.Helper()
	for _, want := range replies {
		got, err := w.read(patience)
		if err != nil {
			w.t.Fatalf("no reply, want %q: %v", want, err)
		}
		if got != want {
			w.t.Fatalf("reply of %d bytes %.60q, want %d bytes %.60q", len(got), got, len(want),
				want)
		}
	}
}

// wantSilence tests that no data comes and that the connection is open.
func (w *wire) wantSilence() {
	w.t.Helper()
	got, err := w.read(moment)
	if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
		w.t.Fatalf("got %q, %v, want nothing", got, err)
	}
}

// wantEnd checks that the connection is closed without another reply.
func (w *wire) wantEnd() {
	w.t.Helper()
	got, err := w.read(patience)
	if timeout, ok := err.(net.Error); err == nil || ok && timeout.Timeout() {
		w.t.Fatalf("got %q, %v, want the end of the connection", got, err)
	}
}

// wantValue tests the server's value without the proxy. "" means no value.
func wantValue(t *testing.T, s *Server, key, want string) {
	t.Helper()
	if got := value(t, s, key); got != want {
		t.Fatalf("server has %s = %q, want %q", key, got, want)
	}
}

func value(t *testing.T, s *Server, key string) string {
	t.Helper()
	reply, err := do(testContext(t), s.Addr(), "GET", []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := reply.(string)
	return text
}
