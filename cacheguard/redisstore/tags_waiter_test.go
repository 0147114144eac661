package redisstore_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// earGate is a network on which a test can hold up the replies to subscribers of an otherwise
// ordinary client.
type earGate struct {
	mu   sync.Mutex // guards shut
	shut chan struct{}
}

func (g *earGate) hold() (letGo func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	shut := make(chan struct{})
	g.shut = shut
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.shut = nil
		close(shut)
	})
}

func (g *earGate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &earConn{Conn: c, gate: g}, nil
}

type earConn struct {
	net.Conn
	gate *earGate
	ear  bool // the connection has subscribed; its reads and its first write come one after another
}

func (c *earConn) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "\r\nsubscribe\r\n") {
		c.gate.mu.Lock()
		c.ear = true
		c.gate.mu.Unlock()
	}
	return c.Conn.Write(b)
}

func (c *earConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.gate.mu.Lock()
	ear, shut := c.ear, c.gate.shut
	c.gate.mu.Unlock()
	if ear && shut != nil {
		<-shut
	}
	return n, err
}

// If a caller begins after an invalidation, it gets no older value, also if the message is late and
// the caller waits for a load from before the invalidation. This holds for values that are stored
// and for values that are not.
func TestWaiterOfALoadFromBeforeTheBump(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for how, bump := range bumps {
		for what, noStore := range map[string]bool{"stored": false, "not stored": true} {
			t.Run(how+", "+what, func(t *testing.T) {
				t.Parallel()
				prefix := newPrefix()
				lease := func(s *site) { s.cache.LeaseTTL = 3 * time.Second }
				a := newReplica(t, server.Addr(), prefix, lease)
				gate := &earGate{}
				b := newReplica(t, server.Addr(), prefix, lease, func(s *site) {
					s.redis.Dialer = gate.dial
				})
				a.listens(t)
				b.listens(t)
				o := newOrigin("old")
				load := func(
					ctx context.Context, _ cacheguard.Result[string],
				) (cacheguard.Entry[string], error) {
					v, err := o.load(ctx)
					return cacheguard.Entry[string]{
						Value: v, Tags: []string{"t"}, NoStore: noStore,
					}, err
				}
				letGo := o.hold()
				mine := a.calls(t, "k", load)
				waittest.Next(t, "the first replica loads", o.began)
				hear := gate.hold()
				defer hear()
				o.set("new", nil)
				must(t, bump(t.Context(), a.cache))
				theirs := b.calls(t, "k", load)
				b.waits(t)
				letGo()
				mine().is(t, "old")
				theirs().is(t, "new")
			})
		}
	}
}
