package program

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// meter counts what one process sends to Redis: round trips, each of a command or a pipeline of
// them. Where it listens, it counts the messages of channels that arrive, too.
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

// DialHook counts on every connection, those of subscriptions too.
func (m *meter) DialHook(next redis.DialHook) redis.DialHook {
	if !m.listens {
		return next
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if tcp, ok := conn.(*net.TCPConn); ok { // embedded, or go-redis would no longer look whether it still stands
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

// messageHead is how a message begins in RESP2 and RESP3, after the line that says of how many
// parts it is.
var messageHead = []byte("$7\r\nmessage\r\n")

// messageCounter counts messages in a stream that comes in pieces.
type messageCounter struct {
	total *atomic.Int64
	tail  []byte // of what has been seen, too short to be a head
}

func (c *messageCounter) see(piece []byte) {
	seen := append(c.tail, piece...)
	c.total.Add(int64(bytes.Count(seen, messageHead)))
	c.tail = append(c.tail[:0], seen[max(0, len(seen)-len(messageHead)+1):]...)
}
