package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// protocolError is a breach of RESP, or a part of RESP that the proxy doesn't know.
type protocolError string

func (e protocolError) Error() string { return "redistest: protocol: " + string(e) }

func errProtocol(format string, args ...any) error {
	return protocolError(fmt.Sprintf(format, args...))
}

const (
	maxBulk = 512 << 20 // Redis' own limit, proto-max-bulk-len
	// Of one aggregate; the elements have to arrive first, so a high limit costs no memory.
	maxElements = 1 << 30
)

// copyReply copies exactly one reply of RESP2 or RESP3 from in to out as it comes. It needs the
// same memory for a value of any length.
func copyReply(out io.Writer, in *bufio.Reader) error {
	// Aggregates need no recursion, because each of them only adds to the number of remaining
	// elements.
	for remaining := int64(1); remaining > 0; {
		more, err := copyElement(out, in)
		if err != nil {
			return err
		}
		remaining += more - 1
	}
	return nil
}

// copyElement copies one element and returns the number of elements that belong to it.
func copyElement(out io.Writer, in *bufio.Reader) (more int64, err error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) && isLine(line[0]) {
		return 0, copyLongLine(out, in, line)
	}
	if errors.Is(err, bufio.ErrBufferFull) {
		return 0, errProtocol("reply starts with %.32q", line)
	}
	if err != nil {
		return 0, err
	}
	kind, n, err := parseHeader(line)
	if err != nil {
		return 0, err
	}
	if _, err := out.Write(line); err != nil {
		return 0, err
	}
	switch kind {
	case '$', '=', '!':
		if n < 0 {
			return 0, nil
		}
		return 0, copyBulk(out, in, n)
	case '*', '~', '>':
		return max(0, n), nil
	case '%':
		return 2 * max(0, n), nil
	case '|': // an attribute is followed by the element that it describes
		return 2*max(0, n) + 1, nil
	}
	return 0, nil
}

// isLine reports whether an element of this kind is only a line: a simple string, error, integer,
// null, boolean, double or big number.
func isLine(kind byte) bool {
	return bytes.IndexByte([]byte("+-:_#,("), kind) >= 0
}

// parseHeader parses the first line of an element: its kind and, if the kind has one, its length.
func parseHeader(line []byte) (kind byte, n int64, err error) {
	text, ended := bytes.CutSuffix(line, []byte("\r\n"))
	if !ended || len(text) == 0 {
		return 0, 0, errProtocol("reply starts with %.32q", line)
	}
	kind = text[0]
	limit := int64(maxElements)
	switch kind {
	case '$', '=', '!':
		limit = maxBulk
	case '*', '~', '>', '%', '|':
	default:
		if !isLine(kind) {
			return 0, 0, errProtocol("reply starts with %.32q", line)
		}
		return kind, 0, nil
	}
	// "$?" and the like are streamed types, which Redis doesn't send.
	n, err = strconv.ParseInt(string(text[1:]), 10, 64)
	if err != nil || n < -1 || n > limit {
		return 0, 0, errProtocol("reply starts with %.32q", line)
	}
	return kind, n, nil
}

func copyLongLine(out io.Writer, in *bufio.Reader, start []byte) error {
	line, err := start, bufio.ErrBufferFull
	for errors.Is(err, bufio.ErrBufferFull) {
		if _, err := out.Write(line); err != nil {
			return err
		}
		line, err = in.ReadSlice('\n')
	}
	if err != nil {
		return err
	}
	_, err = out.Write(line)
	return err
}

// copyBulk copies n bytes and the line end after them.
func copyBulk(out io.Writer, in *bufio.Reader, n int64) error {
	if n > maxBulk {
		return errProtocol("bulk of %d bytes", n)
	}
	// This doesn't use io.Copy, because io.Copy lets out read from in, and reading flushes out (see
	// flushFirst). In this loop every byte goes from buffer to buffer once.
	for missing := n + 2; missing > 0; {
		if _, err := in.Peek(1); err != nil {
			return cutShort(err)
		}
		// No error, because these bytes are buffered.
		piece, _ := in.Peek(int(min(missing, int64(in.Buffered()))))
		if _, err := out.Write(piece); err != nil {
			return err
		}
		taken, _ := in.Discard(len(piece))
		missing -= int64(taken)
	}
	return nil
}

// peekKind returns the first element of the next aggregate if this element is a short bulk string,
// as in pub/sub messages. Otherwise it returns "". It removes nothing from in, and waits only for
// bytes that are sure to come.
func peekKind(in *bufio.Reader) (string, error) {
	for need := 1; ; {
		head, err := in.Peek(max(need, min(in.Buffered(), maxKind+32)))
		if err != nil {
			return "", err
		}
		var kind string
		if kind, need = announcedKind(head); need == 0 {
			return kind, nil
		}
	}
}

const maxKind = 32 // longer than "punsubscribe" and "invalidate"

// announcedKind finds the kind in the first bytes of an aggregate. If there are too few bytes, it
// returns the number of bytes that it needs at least.
func announcedKind(head []byte) (kind string, need int) {
	const maxLine = 16 // the longest line with a length for which peekKind waits
	first := bytes.IndexByte(head, '\n') + 1
	if first == 0 {
		return "", wanting(len(head)+1, maxLine)
	}
	if _, n, err := parseHeader(head[:first]); err != nil || n < 1 {
		return "", 0
	}
	rest := head[first:]
	if len(rest) == 0 {
		return "", len(head) + 1
	}
	if rest[0] != '$' {
		return "", 0
	}
	second := bytes.IndexByte(rest, '\n') + 1
	if second == 0 {
		return "", wanting(len(head)+1, first+maxLine)
	}
	_, n, err := parseHeader(rest[:second])
	if err != nil || n < 0 || n > maxKind {
		return "", 0
	}
	if end := second + int(n); end > len(rest) {
		return "", first + end
	}
	return string(rest[second : second+int(n)]), 0
}

// wanting returns need. If need is above the limit, it returns 0, which means "enough".
func wanting(need, limit int) int {
	if need > limit {
		return 0
	}
	return need
}
