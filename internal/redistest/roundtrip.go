package redistest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// ReplyError is an error reply of the server, such as "WRONGTYPE Operation against ...".
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

func (e ReplyError) loading() bool { return strings.HasPrefix(string(e), "LOADING") }

// do sends one command on a new connection and returns the reply in RESP2: nil, string, int64 or
// []any. An error reply is a ReplyError. It ends with ctx.
func do(ctx context.Context, addr, name string, args ...[]byte) (any, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	interrupt := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer interrupt()

	reply, err := exchange(conn, encodeCommand(name, args))
	if ctx.Err() != nil && !isReply(err) {
		return nil, context.Cause(ctx)
	}
	return reply, err
}

func exchange(conn net.Conn, command []byte) (any, error) {
	if _, err := conn.Write(command); err != nil {
		return nil, err
	}
	reply, err := decodeReply(bufio.NewReader(conn), 0)
	if err != nil {
		return nil, err
	}
	if e, isError := reply.(ReplyError); isError {
		return nil, e
	}
	return reply, nil
}

func isReply(err error) bool {
	var e ReplyError
	return err == nil || errors.As(err, &e)
}

// answers reports whether a server answers at addr and isn't loading data.
func answers(addr string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := do(ctx, addr, "PING")
	var e ReplyError
	return err == nil || errors.As(err, &e) && !e.loading()
}

func encodeCommand(name string, args [][]byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n$%d\r\n%s\r\n", len(args)+1, len(name), name)
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n", len(arg))
		b.Write(arg)
		b.WriteString("\r\n")
	}
	return b.Bytes()
}

const maxDepth = 128 // of nested replies; scripts reach a few

// decodeReply reads one RESP2 reply. An error reply is a ReplyError value,
// also inside an array.
func decodeReply(in *bufio.Reader, depth int) (any, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line, ended := strings.CutSuffix(line, "\r\n")
	if !ended || line == "" || depth > maxDepth {
		return nil, errProtocol("reply starts with %.32q", line)
	}
	kind, text := line[0], line[1:]
	if kind == '+' {
		return text, nil
	}
	if kind == '-' {
		return ReplyError(text), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, errProtocol("reply starts with %.32q", line)
	}
	switch {
	case kind == ':':
		return n, nil
	case kind == '$' && n < 0, kind == '*' && n < 0:
		return nil, nil
	case kind == '$':
		return decodeBulk(in, n)
	case kind == '*':
		return decodeArray(in, n, depth)
	}
	return nil, errProtocol("reply starts with %.32q", line)
}

func decodeBulk(in *bufio.Reader, n int64) (any, error) {
	var b bytes.Buffer
	if err := copyBulk(&b, in, n); err != nil {
		return nil, err
	}
	return string(b.Bytes()[:n]), nil
}

func decodeArray(in *bufio.Reader, n int64, depth int) (any, error) {
	array := []any{} // an empty array isn't nil
	for range n {
		element, err := decodeReply(in, depth+1)
		if err != nil {
			return nil, err
		}
		array = append(array, element)
	}
	return array, nil
}
