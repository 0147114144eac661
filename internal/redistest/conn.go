package redistest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"time"

	"github.com/cacheguard/cacheguard/internal/faultproxy"
)

const bufferSize = 32 << 10 // the size for each direction of each connection

// conn is one client's connection, together with its connection to the server. Each direction has
// its own goroutine.
type conn struct {
	*faultproxy.Link
	proxy   *Proxy
	awaited awaited

	resp3 bool // HELLO 3 was answered; only forwardReplies uses it
}

// carry serves a connection until it ends.
func (p *Proxy) carry(l *faultproxy.Link) {
	c := &conn{Link: l, proxy: p}
	c.Carry(c.forwardCommands, c.forwardReplies)
	p.owed.Add(-int64(c.awaited.left()))
	for _, f := range c.awaited.faults() {
		f.rearm()
	}
}

// forwardCommands forwards commands from the client to the server.
func (c *conn) forwardCommands() {
	out := bufio.NewWriterSize(c.Server, bufferSize)
	in := &requests{in: bufio.NewReaderSize(flushFirst{c.Client, out}, bufferSize)}
	err := c.commands(in, out)
	if !errors.Is(err, io.EOF) {
		c.proxy.note(err)
		c.End()
		return
	}
	// The client sends no more commands, but the server may still be busy with earlier ones.
	// forwardReplies notices when the server has finished.
	if half, ok := c.Server.(interface{ CloseWrite() error }); !ok || out.Flush() != nil ||
		half.CloseWrite() != nil {
		c.End()
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
		// From now on the end of the connection rearms the fault.
		c.proxy.owed.Add(1)
		if err := c.awaited.push(command, fault); err != nil {
			return err
		}
		if !c.slow(out) || !c.Pass(out.Flush) {
			return net.ErrClosed
		}
		c.proxy.count(command)
		if _, err := out.Write(raw); err != nil {
			return err
		}
	}
}

// strikeCommand lets the fault strike the command that was just read. It reports whether the
// command is nevertheless forwarded.
func (c *conn) strikeCommand(f *Fault, in *requests, out *bufio.Writer) (forward bool, err error) {
	// Earlier commands are not struck.
	if err := out.Flush(); err != nil {
		f.rearm()
		return false, err
	}
	if !f.strike() {
		return true, nil
	}
	if f.action == delayCommand {
		if !faultproxy.Await(c.Link, f.gate) {
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

// forwardReplies forwards replies from the server to the client.
func (c *conn) forwardReplies() {
	defer c.End()
	out := bufio.NewWriterSize(c.Client, bufferSize)
	in := bufio.NewReaderSize(flushFirst{c.Server, out}, bufferSize)
	err := c.replies(in, out)
	c.proxy.note(err)
	_ = out.Flush() // the connection ends even if this fails
}

func (c *conn) replies(in *bufio.Reader, client *bufio.Writer) error {
	var out io.Writer = client
	for {
		if in.Buffered() == 0 {
			if err := client.Flush(); err != nil {
				return err
			}
			c.proxy.owed.Add(-int64(c.awaited.delivered()))
		}
		fault, err := c.matchReply(in)
		if err != nil {
			return err
		}
		struck := fault != nil && fault.strike()
		if struck && fault.action == delayReply {
			if client.Flush() != nil || !faultproxy.Await(c.Link, fault.gate) {
				return net.ErrClosed
			}
		}
		if !c.Pass(client.Flush) {
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
	// In RESP3 messages are pushes. In RESP2 they are ordinary arrays.
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

// slow delays a command if the proxy is slow. If the connection ends first, it returns false.
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
	return faultproxy.Await(c.Link, timer.C)
}

// flushFirst is a reader that flushes the forwarded data before it may have to wait for more.
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
