package slowdb

import (
	"context"
	"encoding/gob"
	"net"

	"github.com/cacheguard/cacheguard/bench/internal/wire"
)

// request is a message of a replica to the origin, and reply is the origin's answer.
type (
	request struct {
		Replica  int
		Key      string
		Replaces int64
	}
	reply struct {
		Version int64 // 0: there is no value
		Failed  bool
	}
)

func init() {
	gob.Register(request{})
	gob.Register(reply{})
}

// Client is a replica's connection to the origin. It is safe for concurrent use.
type Client struct {
	conn    net.Conn
	wire    *wire.Client
	replica int
}

// Dial connects a replica.
func Dial(ctx context.Context, addr string, replica int) (*Client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Client{conn, wire.NewClient(conn, conn), replica}, nil
}

// Close ends the connection. Running loads fail.
func (c *Client) Close() error { return c.conn.Close() }

// Load makes one load. version is 0 if the origin has no value with this name. err is ErrFailed if
// the origin failed. If ctx ends first, err is its cause, and the origin learns that nobody waits
// any more.
func (c *Client) Load(ctx context.Context, key string) (version int64, err error) {
	return c.Renew(ctx, key, 0)
}

// Renew is like Load, for a caller that already has a version. The new version replaces it.
func (c *Client) Renew(ctx context.Context, key string, replaces int64) (version int64, err error) {
	answer, err := c.wire.Ask(ctx, request{c.replica, key, replaces})
	if err != nil {
		return 0, err
	}
	r, _ := answer.(reply)
	if r.Failed {
		return 0, ErrFailed
	}
	return r.Version, nil
}
