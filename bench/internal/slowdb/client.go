package slowdb

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
)

// Client is a replica's connection to the origin. It is safe for concurrent use.
type Client struct {
	conn net.Conn

	mu      sync.Mutex // guards what follows
	out     *json.Encoder
	last    int64
	waiting map[int64]chan reply
	ended   error // set when no more replies come
}

// Dial connects a replica.
func Dial(ctx context.Context, addr string, replica int) (*Client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, out: json.NewEncoder(conn), waiting: map[int64]chan reply{}}
	if err := c.out.Encode(hello{replica}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go c.read()
	return c, nil
}

// Close ends the connection. Loads that are under way fail.
func (c *Client) Close() error { return c.conn.Close() }

// Load makes one load. version is 0 if there is nothing of that name; err is ErrFailed if the
// origin failed, and ctx' when that ended first: then the origin knows that nobody waits.
func (c *Client) Load(ctx context.Context, key string) (version int64, err error) {
	answered := make(chan reply, 1)
	c.mu.Lock()
	if c.ended != nil {
		defer c.mu.Unlock()
		return 0, c.ended
	}
	c.last++
	id := c.last
	c.waiting[id] = answered
	err = c.out.Encode(request{ID: id, Key: key})
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	select {
	case r, ok := <-answered:
		switch {
		case !ok:
			return 0, errors.New("the connection to the origin has ended")
		case r.Failed:
			return 0, ErrFailed
		}
		return r.Version, nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ended == nil {
			delete(c.waiting, id)
			_ = c.out.Encode(request{ID: id, Gone: true})
		}
		return 0, context.Cause(ctx)
	}
}

// read hands replies to those who wait for them, until the connection ends.
func (c *Client) read() {
	in := json.NewDecoder(bufio.NewReader(c.conn))
	for {
		var r reply
		err := in.Decode(&r)
		c.mu.Lock()
		if err != nil {
			c.ended = err
			for _, w := range c.waiting {
				close(w)
			}
			c.mu.Unlock()
			return
		}
		if w := c.waiting[r.ID]; w != nil {
			delete(c.waiting, r.ID)
			w <- r
		}
		c.mu.Unlock()
	}
}
