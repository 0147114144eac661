package redistest

import (
	"bufio"
	"bytes"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// replies are complete ones, of every kind and nested.
var replies = []string{
	"+OK\r\n", "+\r\n", "-ERR no\r\n", ":-12\r\n", "_\r\n", "#t\r\n", ",1.5\r\n",
	"(12345678901234567890\r\n",
	"$0\r\n\r\n", "$-1\r\n", "$5\r\na\r\nb\n\r\n", "=7\r\ntxt:abc\r\n", "!5\r\nERR x\r\n",
	"*0\r\n", "*-1\r\n", "*2\r\n$1\r\na\r\n*1\r\n:1\r\n", "~2\r\n+a\r\n+b\r\n",
	"%0\r\n", "%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n%1\r\n+x\r\n+y\r\n_\r\n",
	">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n",
	"|1\r\n+ttl\r\n:3\r\n$1\r\nv\r\n", "*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n",
	"+" + strings.Repeat("long", 50_000) + "\r\n",
	"$200000\r\n" + strings.Repeat("x", 200_000) + "\r\n",
}

func TestCopyReplyIsExact(t *testing.T) {
	for _, reply := range replies {
		// The reply behind it stays.
		for _, in := range []io.Reader{
			strings.NewReader(reply + "+NEXT\r\n"),
			iotest.OneByteReader(strings.NewReader(reply + "+NEXT\r\n")),
		} {
			reader := bufio.NewReader(in)
			var out bytes.Buffer
			if err := copyReply(&out, reader); err != nil {
				t.Fatalf("%.40q: %v", reply, err)
			}
			if out.String() != reply {
				t.Errorf("copied %.60q, want %.60q", out.String(), reply)
			}
			if rest, _ := io.ReadAll(reader); string(rest) != "+NEXT\r\n" {
				t.Errorf("%.40q: left %.40q", reply, rest)
			}
		}
	}
}

func TestCutReplies(t *testing.T) {
	for _, reply := range replies {
		for _, end := range []int{1, len(reply) / 2, len(reply) - 1} {
			if end >= len(reply) {
				continue
			}
			if err := copyReply(io.Discard,
				bufio.NewReader(strings.NewReader(reply[:end]))); err == nil {
				t.Errorf("%.40q, %d bytes: no error", reply, end)
			}
		}
	}
}

func TestBadReplies(t *testing.T) {
	for _, reply := range []string{
		"OK\r\n", "\r\n", "+OK\n", "$x\r\n", "$?\r\n", "$-2\r\n", "*99999999999999999999\r\n",
		"$600000000\r\n",
		"*" + strings.Repeat("1", 100_000) + "\r\n",
	} {
		if err := copyReply(io.Discard, bufio.NewReader(strings.NewReader(reply))); err == nil {
			t.Errorf("%.40q: no error", reply)
		}
	}
}

func TestPeekKindTakesAndAwaitsNothing(t *testing.T) {
	for reply, want := range map[string]string{
		">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n": "message",
		"*2\r\n$4\r\npong\r\n$0\r\n\r\n":                 "pong",
		"*1\r\n$0\r\n\r\n":                               "",
		"*0\r\n":                                         "",
		"*-1\r\n":                                        "",
		"*1\r\n:1\r\n":                                   "",
		"*1\r\n*0\r\n":                                   "",
		"*1\r\n$-1\r\n":                                  "",
		"*1\r\n$99\r\n":                                  "", // not worth waiting for its 99 bytes
		"*1\r\n+x":                                       "", // nor for the end of a line
		"*nonsense\r\n":                                  "",
		"*nonsense without an end":                       "",
		"*1\r\n$nonsense without an end":                 "",
	} {
		reader := bufio.NewReader(iotest.OneByteReader(strings.NewReader(reply)))
		got, err := peekKind(reader)
		if err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", reply, got, err, want)
		}
		if rest, _ := io.ReadAll(reader); string(rest) != reply {
			t.Errorf("%q: left %q", reply, rest)
		}
	}
	if _, err := peekKind(bufio.NewReader(strings.NewReader("*1\r\n$7\r\nmess"))); err == nil {
		t.Error("no error at the end of the stream")
	}
}

func TestDecodeReply(t *testing.T) {
	for reply, want := range map[string]any{
		"+OK\r\n":                         "OK",
		"-ERR no\r\n":                     ReplyError("ERR no"),
		":-12\r\n":                        int64(-12),
		"$3\r\na\r\n\r\n":                 "a\r\n",
		"$0\r\n\r\n":                      "",
		"$-1\r\n":                         nil,
		"*-1\r\n":                         nil,
		"*0\r\n":                          []any{},
		"*3\r\n:1\r\n*1\r\n-E\r\n$-1\r\n": []any{int64(1), []any{ReplyError("E")}, nil},
	} {
		got, err := decodeReply(bufio.NewReader(strings.NewReader(reply)), 0)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %#v, %v, want %#v", reply, got, err, want)
		}
	}
	for _, reply := range []string{
		"", "+OK", "+OK\n", "\r\n", ":x\r\n", "?1\r\n", "$5\r\nabc", "$999999999\r\n",
		"*2\r\n:1\r\n",
		strings.Repeat("*1\r\n", 1000) + ":1\r\n",
	} {
		if got, err := decodeReply(bufio.NewReader(strings.NewReader(reply)), 0); err == nil {
			t.Errorf("%.40q: %v, want an error", reply, got)
		}
	}
}

func FuzzReplies(f *testing.F) {
	for _, reply := range replies[:len(replies)-2] {
		f.Add([]byte(reply))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		reader := bufio.NewReader(bytes.NewReader(in))
		if kind, err := peekKind(reader); err == nil && !bytes.Contains(in, []byte(kind)) {
			t.Fatalf("kind %q", kind)
		}
		err := copyReply(&out, reader)
		if !bytes.HasPrefix(in, out.Bytes()) {
			t.Fatalf("copied %q", out.Bytes())
		}
		if rest, _ := io.ReadAll(reader); err == nil && out.Len()+len(rest) != len(in) {
			t.Fatalf("copied %d, left %d of %d", out.Len(), len(rest), len(in))
		}
		_, _ = decodeReply(bufio.NewReader(bytes.NewReader(in)), 0)
	})
}
