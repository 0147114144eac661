// Package wire is how the benchmark's processes talk, over pipes and connections: one end asks, and
// the other one answers each question on a goroutine of its own. Both are the same program: what
// crosses the wire are its own types, which it has registered with gob.
package wire

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"io"
	"sync"
)

// question is what one end sends. Without Ask it says that nobody waits any more for an answer.
type question struct {
	ID  int
	Ask any
}

// reply is what it gets.
type reply struct {
	ID     int
	Answer any
	Err    string
}

// Client is the end that asks. It is safe for concurrent use.
type Client struct {
	over chan struct{} // closed when no more answers come

	mu      sync.Mutex // guards what follows
	out     *gob.Encoder
	last    int
	waiting map[int]chan<- reply // nil when no more answers come
}

// ErrEnded is for questions that the other end has not answered before it ended.
var ErrEnded = errors.New("the other end is gone")

// NewClient asks by out, and reads answers from in until that ends.
func NewClient(in io.Reader, out io.Writer) *Client {
	c := &Client{over: make(chan struct{}), out: gob.NewEncoder(out), waiting: map[int]chan<- reply{}}
	go c.listen(gob.NewDecoder(bufio.NewReader(in)))
	return c
}

// Over is closed when no more answers come.
func (c *Client) Over() <-chan struct{} { return c.over }

// listen hands answers to those who wait for them.
func (c *Client) listen(in *gob.Decoder) {
	defer close(c.over)
	for {
		var r reply
		err := in.Decode(&r)
		c.mu.Lock()
		w := c.waiting[r.ID]
		delete(c.waiting, r.ID)
		if err != nil {
			for _, w := range c.waiting {
				close(w)
			}
			c.waiting = nil
		}
		c.mu.Unlock()
		switch {
		case err != nil:
			return
		case w != nil:
			w <- r
		}
	}
}

// Ask waits for the answer. If ctx ends first, the other end is told, and the error is its cause.
func (c *Client) Ask(ctx context.Context, ask any) (answer any, err error) {
	answered := make(chan reply, 1)
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return nil, ErrEnded
	}
	c.last++
	id := c.last
	c.waiting[id] = answered
	err = c.out.Encode(question{id, ask})
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case r, ok := <-answered:
		switch {
		case !ok:
			return nil, ErrEnded
		case r.Err != "":
			return r.Answer, errors.New(r.Err)
		}
		return r.Answer, nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waiting != nil {
			delete(c.waiting, id)
			_ = c.out.Encode(question{ID: id}) // an error means that it is gone, which listen sees
		}
		return nil, context.Cause(ctx)
	}
}

// Serve is the end that answers, until there are no more questions: then those that are left have
// their contexts ended, and are waited for.
func Serve(
	ctx context.Context, in io.Reader, out io.Writer, answer func(ctx context.Context, ask any) (any, error),
) error {
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	questions, replies := gob.NewDecoder(bufio.NewReader(in)), gob.NewEncoder(out)
	var mu sync.Mutex // guards replies and gone
	gone := map[int]context.CancelFunc{}
	for {
		var q question
		if err := questions.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		mu.Lock()
		if q.Ask == nil {
			if cancel := gone[q.ID]; cancel != nil {
				cancel()
			}
			mu.Unlock()
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		gone[q.ID] = cancel
		mu.Unlock()
		tasks.Go(func() {
			r := reply{ID: q.ID}
			var err error
			if r.Answer, err = answer(ctx, q.Ask); err != nil {
				r.Err = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			if delete(gone, q.ID); ctx.Err() == nil { // or nobody waits
				_ = replies.Encode(r) // an error means that nobody asks any more
			}
			cancel()
		})
	}
}
