package redistest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	bufferSize  = 32 << 10 // each way of each connection
)

// conn is one client's connection and the one to the server that belongs to
// it. Three goroutines: serve owns both and closes them, the other two
// forward one direction each.
type conn struct {
	proxy   *Proxy
	client  net.Conn
	server  net.Conn
	awaited awaited

	end   context.CancelFunc // tells serve to close
	done  <-chan struct{}    // closed by end
	ended chan struct{}      // closed when all is over
	dial  func() (net.Conn, error)

	resp3 bool // of forwardReplies: HELLO 3 was answered
}

func newConn(p *Proxy, client net.Conn) *conn {
	ctx, cancel := context.WithCancel(context.Background())
	dialer := net.Dialer{Timeout: dialTimeout}
	return &conn{
		proxy:  p,
		client: client,
		end:    cancel,
		done:   ctx.Done(),
		ended:  make(chan struct{}),
		dial:   func() (net.Conn, error) { return dialer.DialContext(ctx, "tcp", p.target) },
	}
}

func (c *conn) serve() {
	defer close(c.ended)
	defer c.proxy.remove(c)
	defer c.client.Close()
	defer c.end()
	if !c.pass(nil) {
		return
	}
	var err error
	if c.server, err = c.dial(); err != nil {
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(c.forwardCommands)
	pumps.Go(c.forwardReplies)
	<-c.done
	_ = c.client.Close()
	_ = c.server.Close()
	pumps.Wait()
	for _, f := range c.awaited.faults() {
		f.rearm()
	}
}

// forwardCommands is the way from the client to the server.
func (c *conn) forwardCommands() {
	out := bufio.NewWriterSize(c.server, bufferSize)
	in := &requests{in: bufio.NewReaderSize(flushFirst{c.client, out}, bufferSize)}
	err := c.commands(in, out)
	if !errors.Is(err, io.EOF) {
		c.proxy.note(err)
		c.end()
		return
	}
	// The client has nothing more to say, and the server may still be busy
	// with what it said: forwardReplies sees the end of that.
	if half, ok := c.server.(interface{ CloseWrite() error }); !ok || out.Flush() != nil || half.CloseWrite() != nil {
		c.end()
	}
}

// commands returns io.EOF when the client has ended its side.
func (c *conn) commands(in *requests, out *bufio.Writer) error {
	for {
		command, raw, err := in.next()
		if err != nil {
			return err
		}
		fault := c.proxy.taker(command)
		if fault != nil && fault.strikesCommand() {
			if forward, err := c.strikeCommand(fault, in, out); err != nil {
				return err
			} else if !forward {
				continue
			}
			fault = nil
		}
		// From here on the end of the connection rearms the fault.
		if err := c.awaited.push(command, fault); err != nil {
			return err
		}
		if !c.slow(out) || !c.pass(out) {
			return net.ErrClosed
		}
		c.proxy.count(command)
		if _, err := out.Write(raw); err != nil {
			return err
		}
	}
}

// strikeCommand lets the fault strike the command just read, and reports
// whether the command is forwarded all the same.
func (c *conn) strikeCommand(f *Fault, in *requests, out *bufio.Writer) (forward bool, err error) {
	// What came before is not struck.
	if err := out.Flush(); err != nil {
		f.rearm()
		return false, err
	}
	if !f.strike() {
		return true, nil
	}
	if f.action == delayCommand {
		if !c.await(f.gate) {
			return false, net.ErrClosed
		}
		return true, nil
	}
	switch f.then {
	case Hangup:
		return false, net.ErrClosed
	case Silence:
		_, err := io.Copy(io.Discard, in.in)
		if err == nil {
			err = io.EOF
		}
		return false, err
	}
	return false, nil
}

// forwardReplies is the way from the server to the client.
func (c *conn) forwardReplies() {
	defer c.end()
	out := bufio.NewWriterSize(c.client, bufferSize)
	in := bufio.NewReaderSize(flushFirst{c.server, out}, bufferSize)
	err := c.replies(in, out)
	c.proxy.note(err)
	_ = out.Flush() // the connection ends with or without it
}

func (c *conn) replies(in *bufio.Reader, client *bufio.Writer) error {
	var out io.Writer = client
	for {
		fault, err := c.matchReply(in)
		if err != nil {
			return err
		}
		struck := fault != nil && fault.strike()
		if struck && fault.action == delayReply {
			if client.Flush() != nil || !c.await(fault.gate) {
				return net.ErrClosed
			}
		}
		if !c.pass(client) {
			return net.ErrClosed
		}
		if !struck || fault.action != dropReply {
			if err := copyReply(out, in); err != nil {
				return err
			}
			continue
		}
		if err := copyReply(io.Discard, in); err != nil {
			return err
		}
		switch fault.then {
		case Hangup:
			return net.ErrClosed
		case Silence:
			out = io.Discard
		}
	}
}

// matchReply waits for the next reply and returns the fault that has taken
// its command, or nil. Messages belong to no command.
func (c *conn) matchReply(in *bufio.Reader) (*Fault, error) {
	head, err := in.Peek(1)
	if err != nil {
		return nil, err
	}
	first := head[0]
	// In RESP3 messages are pushes, in RESP2 they are arrays like any other.
	if first == '>' || first == '*' && !c.resp3 && c.awaited.hasSubscribed() {
		kind, err := peekKind(in)
		switch {
		case err != nil:
			return nil, err
		case isMessage(kind):
			return nil, nil
		case isConfirmation(kind):
			return c.awaited.confirm().fault, nil
		case first == '>':
			return nil, nil
		}
	}
	command := c.awaited.answer()
	if command.hello && first != '-' {
		c.resp3 = first == '%'
	}
	return command.fault, nil
}

func isMessage(kind string) bool {
	switch kind {
	case "message", "pmessage", "smessage":
		return true
	}
	return false
}

func isConfirmation(kind string) bool {
	switch kind {
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		return true
	}
	return false
}

// pass returns true when nothing swallows the traffic, after a wait if need
// be, and false if the connection ends first. out is flushed before a wait.
func (c *conn) pass(out *bufio.Writer) bool {
	for {
		lifted := c.proxy.hole.lifted()
		if lifted == nil {
			return true
		}
		if out != nil && out.Flush() != nil {
			return false
		}
		if !c.await(lifted) {
			return false
		}
	}
}

// slow makes a command later if the proxy is slow, and returns false if the
// connection ends first.
func (c *conn) slow(out *bufio.Writer) bool {
	by := time.Duration(c.proxy.slow.Load())
	if by == 0 {
		return true
	}
	if out.Flush() != nil {
		return false
	}
	timer := time.NewTimer(by)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.done:
		return false
	}
}

// await returns true when gate is closed and false if the connection ends
// first.
func (c *conn) await(gate <-chan struct{}) bool {
	select {
	case <-gate:
		return true
	case <-c.done:
		return false
	}
}

// flushFirst is a reader that, before it may have to wait for more, sends what
// it has let through so far.
type flushFirst struct {
	in  io.Reader
	out *bufio.Writer
}

func (f flushFirst) Read(p []byte) (int, error) {
	if err := f.out.Flush(); err != nil {
		return 0, err
	}
	return f.in.Read(p)
}
