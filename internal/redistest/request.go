package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
)

const (
	maxCommand     = 256 << 20 // bytes of one command; a command is kept in memory
	maxArgs        = 1 << 20   // Redis' own limit
	keptBuffer     = 1 << 20   // a larger buffer is not kept for the next command
	requestReadMax = 1 << 20   // largest piece that is read at once, for any announced length
)

// requests reads the commands of one client connection.
type requests struct {
	in   *bufio.Reader
	raw  []byte // the current command as it was sent
	args []span // its arguments in raw
}

type span struct{ from, to int }

// next reads a command, and returns it together with the bytes to forward. Both are valid until the
// next call. If the stream ends between two commands, the error is io.EOF.
func (r *requests) next() (Command, []byte, error) {
	if cap(r.raw) > keptBuffer {
		r.raw = nil
	}
	for {
		r.raw, r.args = r.raw[:0], r.args[:0]
		n, err := r.length('*', maxArgs)
		if err != nil {
			return Command{}, nil, err
		}
		if n <= 0 { // Redis accepts it and doesn't answer
			continue
		}
		for range n {
			if err := r.argument(); err != nil {
				return Command{}, nil, cutShort(err)
			}
		}
		return r.command(), r.raw, nil
	}
}

func (r *requests) command() Command {
	args := make([][]byte, len(r.args))
	for i, s := range r.args {
		args[i] = r.raw[s.from:s.to:s.to]
	}
	return Command{Name: strings.ToUpper(string(args[0])), Args: args[1:]}
}

// length reads a line such as "$3\r\n".
func (r *requests) length(kind byte, limit int) (int, error) {
	line, err := r.in.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(line) > 0 {
		return 0, io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return 0, err
	}
	digits, ended := bytes.CutSuffix(line, []byte("\r\n"))
	if !ended || len(digits) == 0 || digits[0] != kind {
		return 0, errProtocol("command has %.32q where %q is due", line, kind)
	}
	n, err := strconv.Atoi(string(digits[1:]))
	if err != nil || n > limit {
		return 0, errProtocol("command has %.32q where %q is due", line, kind)
	}
	r.raw = append(r.raw, line...)
	return n, nil
}

func (r *requests) argument() error {
	n, err := r.length('$', maxBulk)
	if err != nil {
		return err
	}
	if n < 0 || len(r.raw)+n > maxCommand {
		return errProtocol("argument of %d bytes", n)
	}
	from := len(r.raw)
	// Read in pieces, because the announced length may be wrong. No byte is moved twice, except
	// when the buffer grows, by a factor.
	for missing := n + len("\r\n"); missing > 0; {
		piece := min(missing, requestReadMax)
		end := len(r.raw)
		r.raw = slices.Grow(r.raw, piece)[:end+piece]
		if _, err := io.ReadFull(r.in, r.raw[end:]); err != nil {
			return err
		}
		missing -= piece
	}
	if !bytes.HasSuffix(r.raw, []byte("\r\n")) {
		return errProtocol("argument of %d bytes is longer", n)
	}
	r.args = append(r.args, span{from, from + n})
	return nil
}

// cutShort turns io.EOF inside a command into io.ErrUnexpectedEOF.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
