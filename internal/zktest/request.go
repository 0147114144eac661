package zktest

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Request is a request of a client.
type Request struct {
	Op   string // "create", "delete", "getChildren", ...: see ops
	Path string // path of the node, if the request has a path
}

// IsOp matches the requests of one kind.
func IsOp(op string) func(Request) bool {
	return func(r Request) bool { return r.Op == op }
}

// ops are the kinds of requests by their numbers. Those after "ping" have no path.
var ops = map[int32]string{
	1: "create", 2: "delete", 3: "exists", 4: "getData", 5: "setData", 6: "getACL", 7: "setACL",
	8: "getChildren",
	// 12 also returns the node's Stat. 19 creates a container, and 21 a node with a TTL.
	9: "sync", 12: "getChildren", 19: "create", 21: "create",
	11: "ping", 14: "multi", 100: "auth", 101: "setWatches", -11: "close",
}

// All data in both directions is in frames. A frame has its length in four bytes, and then this
// number of bytes. The first frame in each direction opens the session. Each later frame begins
// with the number of a request. The reply to a request has the same number. In a request the kind
// follows. Numbers below zero belong to no request; a frame with watchEvent is an event of a watch.
const (
	most       = 4 << 20 // bytes in a frame; servers by default take 1 MB
	watchEvent = -1
)

// readFrame returns a frame with its length.
func readFrame(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head)
	if n > most {
		return nil, fmt.Errorf("zktest: a frame of %d bytes", n)
	}
	frame := make([]byte, 4+n)
	copy(frame, head)
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// number returns the number in a frame: the number of its request, or of the request that it
// answers.
func number(frame []byte) int32 { return word(frame, 4) }

// request decodes the request in a frame that doesn't open the session.
func request(frame []byte) Request {
	kind := word(frame, 8)
	op, known := ops[kind]
	if !known {
		op = fmt.Sprint("op ", kind)
	}
	r := Request{Op: op}
	switch op {
	case "ping", "multi", "auth", "setWatches", "close":
		return r
	}
	if n := int(word(frame, 12)); n > 0 && n <= len(frame)-16 {
		r.Path = string(frame[16 : 16+n])
	}
	return r
}

// word returns the number at an offset. If the frame is too short, it returns 0.
func word(frame []byte, at int) int32 {
	if len(frame) < at+4 {
		return 0
	}
	return int32(binary.BigEndian.Uint32(frame[at:]))
}
