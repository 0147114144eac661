package redistest

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/waittest"
)

// A subscriber's connection carries messages among the replies; every one has
// to find its command, in both versions of the protocol.
func TestRepliesAmongMessages(t *testing.T) {
	for version, kind := range map[int]string{2: "*", 3: ">"} {
		t.Run(fmt.Sprintf("RESP%d", version), func(t *testing.T) {
			s, p := sharedProxy(t)
			w := subscriberWire(t, p, version)
			publisher := dial(t, s.Addr())
			publish := func() {
				publisher.send("PUBLISH a hi")
				publisher.want(":1\r\n")
			}
			message := kind + "3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n"
			pong := map[int]string{2: "*2\r\n$4\r\npong\r\n$0\r\n\r\n", 3: "+PONG\r\n"}[version]

			w.send("SUBSCRIBE a b", "PING")
			w.want(confirmation(kind, "subscribe", "a", 1), confirmation(kind, "subscribe", "b", 2),
				pong)

			// The reply to PING is held, so a message that came behind it is too.
			gate := make(chan struct{})
			held := p.DelayReply(IsCommand("PING"), gate)
			publish()
			w.want(message)
			w.send("PING")
			waittest.Next(t, "the fault", held.Struck())
			publish()
			w.wantSilence()
			close(gate)
			w.want(pong, message)

			// One PING without a reply, everything else passes.
			lost := p.DropReply(IsCommand("PING"), GoOn)
			w.send("PING", "SUBSCRIBE c", "PING")
			w.want(confirmation(kind, "subscribe", "c", 3), pong)
			waittest.Next(t, "the fault", lost.Struck())

			// All confirmations of one command are its reply.
			lost = p.DropReply(IsCommand("SUBSCRIBE"), GoOn)
			w.send("SUBSCRIBE d e", "UNSUBSCRIBE b")
			w.want(confirmation(kind, "unsubscribe", "b", 4))
			waittest.Next(t, "the fault", lost.Struck())
			publish()
			w.want(message)

			// An error is a reply too.
			lost = p.DropReply(IsCommand("SUBSCRIBE"), GoOn)
			w.send("SUBSCRIBE", "PING")
			w.want(pong)
			waittest.Next(t, "the fault", lost.Struck())

			// All at once: as many confirmations as there were channels.
			w.send("UNSUBSCRIBE", "GET k")
			for n := 3; n >= 0; n-- {
				if got, err := w.read(patience); err != nil || len(got) < 20 || got[:1] != kind {
					t.Fatalf("confirmation %q, %v", got, err)
				}
			}
			null := map[int]string{2: "$-1\r\n", 3: "_\r\n"}[version]
			w.want(null)
			lost = p.DropReply(HasKey("x"), GoOn)
			w.send("GET x", "LRANGE list 0 -1")
			w.want("*0\r\n")
			waittest.Next(t, "the fault", lost.Struck())

			// Half open: nothing comes any more, messages neither.
			w.send("SUBSCRIBE a")
			w.want(confirmation(kind, "subscribe", "a", 1))
			lost = p.DropReply(IsCommand("PING"))
			w.send("PING")
			waittest.Next(t, "the fault", lost.Struck())
			publish()
			w.wantSilence()
		})
	}
}

func subscriberWire(t *testing.T, p *Proxy, version int) *wire {
	t.Helper()
	w := dial(t, p.Addr())
	w.send(fmt.Sprintf("HELLO %d", version))
	if got, err := w.read(patience); err != nil ||
		got[:1] != map[int]string{2: "*", 3: "%"}[version] {
		t.Fatalf("HELLO: %q, %v", got, err)
	}
	return w
}

func confirmation(kind, verb, channel string, n int) string {
	return fmt.Sprintf("%s3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:%d\r\n", kind, len(verb), verb,
		len(channel), channel, n)
}

// Messages in a list look like messages on the wire, in RESP3 only on paper.
func TestListsThatLookLikeMessages(t *testing.T) {
	_, p := sharedProxy(t)
	w := subscriberWire(t, p, 3)
	w.send("RPUSH list message a hi", "SUBSCRIBE a")
	w.want(":3\r\n", confirmation(">", "subscribe", "a", 1))
	lost := p.DropReply(IsCommand("LRANGE"), GoOn)
	w.send("LRANGE list 0 -1", "PING")
	w.want("+PONG\r\n")
	waittest.Next(t, "the fault", lost.Struck())
}

func TestInvalidationsAreNoReplies(t *testing.T) {
	s, p := sharedProxy(t)
	w := subscriberWire(t, p, 3)
	w.send("CLIENT TRACKING ON", "GET k")
	w.want("+OK\r\n", "_\r\n")
	writer := dial(t, s.Addr())
	writer.send("SET k v")
	writer.want("+OK\r\n")
	w.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n")
	lost := p.DropReply(IsCommand("GET"), GoOn)
	w.send("GET k", "PING")
	w.want("+PONG\r\n")
	waittest.Next(t, "the fault", lost.Struck())
}

func TestGoRedisSubscribesThroughTheProxy(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			_, p := sharedProxy(t)
			ctx := testContext(t)
			rdb := newClient(t, p.Addr(), func(o *redis.Options) { o.Protocol = protocol })
			subscription := rdb.Subscribe(ctx, "c")
			defer subscription.Close()
			receive := func() any {
				t.Helper()
				message, err := subscription.ReceiveTimeout(ctx, patience)
				if err != nil {
					t.Fatal(err)
				}
				return message
			}
			if _, ok := receive().(*redis.Subscription); !ok {
				t.Fatal("not subscribed")
			}
			if err := rdb.Publish(ctx, "c", "hi").Err(); err != nil {
				t.Fatal(err)
			}
			if m, ok := receive().(*redis.Message); !ok || m.Payload != "hi" {
				t.Fatalf("got %v", m)
			}
			// Cut, it comes back by itself and says so.
			p.Cut()
			waittest.Until(t, "the subscription", func() bool {
				m, err := subscription.ReceiveTimeout(ctx, time.Second)
				_, subscribed := m.(*redis.Subscription)
				return err == nil && subscribed
			})

		})
	}
}
