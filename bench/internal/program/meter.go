package program

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// meter counts the round trips of one process to Redis. A round trip is a command or a pipeline of
// commands. On subscriptions it also counts the messages that arrive.
type meter struct {
	trips    atomic.Int64
	listens  bool
	messages atomic.Int64
}

func (m *meter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		m.trips.Add(1)
		return next(ctx, cmd)
	}
}

func (m *meter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		m.trips.Add(1)
		return next(ctx, cmds)
	}
}

// DialHook counts on every connection, also on those of subscriptions.
func (m *meter) DialHook(next redis.DialHook) redis.DialHook {
	if !m.listens {
		return next
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		// Embed *net.TCPConn; otherwise go-redis would no longer check whether the connection is
		// alive.
		if tcp, ok := conn.(*net.TCPConn); ok {
			conn = &meteredConn{TCPConn: tcp, messages: messageCounter{total: &m.messages}}
		}
		return conn, err
	}
}

type meteredConn struct {
	*net.TCPConn
	messages messageCounter
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.messages.see(p[:n])
	return n, err
}

// messageHead is the beginning of a message in RESP2 and RESP3, after the line with the number of
// its parts.
var messageHead = []byte("$7\r\nmessage\r\n")

// messageCounter counts messages in a stream that arrives in pieces.
type messageCounter struct {
	total *atomic.Int64
	tail  []byte // the last bytes of the stream, fewer than a head
}

func (c *messageCounter) see(piece []byte) {
	seen := append(c.tail, piece...)
	c.total.Add(int64(bytes.Count(seen, messageHead)))
	c.tail = append(c.tail[:0], seen[max(0, len(seen)-len(messageHead)+1):]...)
}
