package zklock

import (
	"net/url"
	"strconv"
	"strings"
)

// dirOf returns the path of the node of a name. The nodes of calls that want the lock are its
// children. No two names have the same path.
func dirOf(prefix, name string) string {
	// The escaped name has no slash, no control character, and nothing that isn't ASCII.
	escaped := url.PathEscape(name)
	switch escaped {
	case ".", "..": // the only results that ZooKeeper doesn't accept as names
		escaped = strings.ReplaceAll(escaped, ".", "%2E")
	}
	return prefix + "/" + escaped
}

// The name of a node in the queue contains the id of its Lock call, so that the call can recognise
// the node if the reply to the creation was lost. ZooKeeper adds a number. zk.Lock and Curator use
// the same form.
const (
	beforeCall = "_c_"
	beforeTurn = "-lock-"
)

// turnOf returns the number that ZooKeeper gave to a node in the queue. ok is false for other
// nodes.
func turnOf(node string) (turn int32, ok bool) {
	at := strings.LastIndex(node, "lock-")
	if at < 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(node[at+len("lock-"):], 10, 32)
	return int32(n), err == nil
}

// earlier reports whether a turn comes before another one. The numbers wrap around: -2147483648
// follows 2147483647.
func earlier(a, b int32) bool { return a-b < 0 }

// beforeIn returns the node directly before the given node in the queue, or "" if the given node is
// the first. there is false if the given node isn't in the queue.
func beforeIn(nodes []string, node string) (before string, there bool) {
	own, ok := turnOf(node)
	if !ok {
		return "", false
	}
	var latest int32
	for _, other := range nodes {
		turn, ok := turnOf(other)
		switch {
		case other == node:
			there = true
		case ok && earlier(turn, own) && (before == "" || earlier(latest, turn)):
			before, latest = other, turn
		}
	}
	return before, there
}

// anyIn reports whether the queue has any node.
func anyIn(nodes []string) bool {
	for _, node := range nodes {
		if _, ok := turnOf(node); ok {
			return true
		}
	}
	return false
}

// ofCall returns the nodes that belong to a call, found by the start of their names.
func ofCall(nodes []string, call string) []string {
	var own []string
	for _, node := range nodes {
		if strings.HasPrefix(node, call) {
			own = append(own, node)
		}
	}
	return own
}
