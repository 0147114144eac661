package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func readRequests(in io.Reader) *requests {
	return &requests{in: bufio.NewReaderSize(in, bufferSize)}
}

func TestRequestsAreReadAsSent(t *testing.T) {
	big := strings.Repeat("x", 3*requestReadMax+1)
	sent := []string{
		"*1\r\n$4\r\nping\r\n",
		"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\n\r\n*1\r\n", // an empty key and a value like protocol
		string(encodeCommand("SET", [][]byte{[]byte("k"), []byte(big)})),
		"*1\r\n$0\r\n\r\n",
	}
	names := []string{"PING", "SET", "SET", ""}
	// One byte at a time, and with what Redis ignores in between.
	for _, in := range []io.Reader{
		strings.NewReader(strings.Join(sent, "*0\r\n*-1\r\n")),
		iotest.OneByteReader(strings.NewReader(strings.Join(sent, ""))),
	} {
		r := readRequests(in)
		for i := range sent {
			c, raw, err := r.next()
			if err != nil {
				t.Fatal(err)
			}
			if string(raw) != sent[i] || c.Name != names[i] {
				t.Errorf("got %v, raw %.40q, want %.40q", c, raw, sent[i])
			}
			if i == 2 && string(c.Args[1]) != big {
				t.Error("the big value is another one")
			}
		}
		if _, _, err := r.next(); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
	}
}

func TestBadRequests(t *testing.T) {
	for in, want := range map[string]error{
		"PING\r\n":                         protocolError(""), // inline
		"\r\n":                             protocolError(""),
		"*x\r\n":                           protocolError(""),
		"*1\n":                             protocolError(""),
		"*99999999\r\n":                    protocolError(""),
		"*1\r\n+OK\r\n":                    protocolError(""),
		"*1\r\n$-1\r\n":                    protocolError(""),
		"*1\r\n$1\r\nabc\r\n":              protocolError(""),
		"*1\r\n$600000000\r\n":             protocolError(""), // more than Redis takes
		"*1\r\n$300000000\r\n":             protocolError(""), // more than the proxy takes
		"*" + strings.Repeat("1", 100_000): protocolError(""),
		"*1":                               io.ErrUnexpectedEOF,
		"*1\r\n":                           io.ErrUnexpectedEOF,
		"*1\r\n$4\r\nPI":                   io.ErrUnexpectedEOF,
		"*2\r\n$4\r\nPING\r\n":             io.ErrUnexpectedEOF,
	} {
		_, _, err := readRequests(strings.NewReader(in)).next()
		var breach protocolError
		if isBreach := errors.As(err, &breach); isBreach != (want == protocolError("")) ||
			!isBreach && err != want {
			t.Errorf("%.40q: %v", in, err)
		}
	}
}

// An announced length must not cost memory before the bytes are there.
func TestAnnouncedLengthIsNotAllocated(t *testing.T) {
	r := readRequests(strings.NewReader("*1\r\n$200000000\r\nabc"))
	if _, _, err := r.next(); err != io.ErrUnexpectedEOF {
		t.Fatal(err)
	}
	if got := cap(r.raw); got > 4*requestReadMax {
		t.Errorf("%d bytes for a promise", got)
	}
}

func FuzzRequests(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n"))
	f.Add([]byte("*1\r\n$-1\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := readRequests(bytes.NewReader(in))
		for {
			c, raw, err := r.next()
			if err != nil {
				return
			}
			if !bytes.Contains(in, raw) {
				t.Fatalf("%q was not sent", raw)
			}
			_ = c.String()
			IsEval("x")(c)
			HasKey("x")(c)
			again, _, err := readRequests(bytes.NewReader(encodeCommand(c.Name, c.Args))).next()
			if err != nil || again.String() != c.String() {
				t.Fatalf("%v encoded reads as %v, %v", c, again, err)
			}
		}
	})
}
