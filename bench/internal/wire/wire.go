// Package wire is the protocol between the benchmark's processes, over pipes and connections. One
// end asks, and the other end answers each question on a separate goroutine. Both ends are the same
// program. They send the program's own types, which it has registered with gob.
package wire

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"io"
	"sync"
)

// question is a message of the end that asks. A question without Ask means that nobody waits for
// the answer to the question with this ID any more.
type question struct {
	ID  int
	Ask any
}

// reply is the answer to a question.
type reply struct {
	ID     int
	Answer any
	Err    string
}

// Client is the end that asks. It is safe for concurrent use.
type Client struct {
	over chan struct{} // closed when no more answers come

	mu      sync.Mutex // guards the fields below
	out     *gob.Encoder
	last    int
	waiting map[int]chan<- reply // nil when no more answers come
}

// ErrEnded is the error of a question if the other end has ended without an answer.
var ErrEnded = errors.New("the other end is gone")

// NewClient returns a client that sends questions to out, and reads answers from in until in ends.
func NewClient(in io.Reader, out io.Writer) *Client {
	c := &Client{
		over: make(chan struct{}), out: gob.NewEncoder(out), waiting: map[int]chan<- reply{},
	}
	go c.listen(gob.NewDecoder(bufio.NewReader(in)))
	return c
}

// Over returns a channel that is closed when no more answers come.
func (c *Client) Over() <-chan struct{} { return c.over }

// listen passes answers to the calls that wait for them.
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

// Ask sends a question and waits for the answer. If ctx ends first, Ask tells the other end, and
// returns the cause of ctx.
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
			// An error means that the other end is gone, which listen notices.
			_ = c.out.Encode(question{ID: id})
		}
		return nil, context.Cause(ctx)
	}
}

// Serve is the answering end. It answers until there are no more questions. Then it ends the
// contexts of the questions that are still running, and waits for them.
func Serve(
	ctx context.Context, in io.Reader, out io.Writer,
	answer func(ctx context.Context, ask any) (any, error),
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
			if delete(gone, q.ID); ctx.Err() == nil { // otherwise nobody waits for the answer
				_ = replies.Encode(r) // an error means that the asking end is gone
			}
			cancel()
		})
	}
}
