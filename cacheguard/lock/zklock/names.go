package zklock

import (
	"net/url"
	"strconv"
	"strings"
)

// dirOf is the node of a name: those who want the lock are its children. No two names have the
// same.
func dirOf(prefix, name string) string {
	escaped := url.PathEscape(name) // leaves no slash, no control character, and nothing that isn't ASCII
	switch escaped {
	case ".", "..": // the only ones left that are no names of nodes
		escaped = strings.ReplaceAll(escaped, ".", "%2E")
	}
	return prefix + "/" + escaped
}

// A node in the line of a name is called after the call of Lock it belongs to, so that this can be
// recognised when the reply to its creation was lost; ZooKeeper adds a number. The form is that of
// zk.Lock and of Curator.
const (
	beforeCall = "_c_"
	beforeTurn = "-lock-"
)

// turnOf is the number that ZooKeeper gave to a node in line; ok is false for nodes that are none.
func turnOf(node string) (turn int32, ok bool) {
	at := strings.LastIndex(node, "lock-")
	if at < 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(node[at+len("lock-"):], 10, 32)
	return int32(n), err == nil
}

// earlier reports whether a turn comes before another one. The numbers go round: after 2147483647
// comes -2147483648.
func earlier(a, b int32) bool { return a-b < 0 }

// beforeIn returns the node that stands directly before another one in line, or "" if none does.
// there is false if node isn't in line itself.
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

// anyIn reports whether somebody stands in line.
func anyIn(nodes []string) bool {
	for _, node := range nodes {
		if _, ok := turnOf(node); ok {
			return true
		}
	}
	return false
}

// ofCall returns the nodes that belong to a call, by what their names begin with.
func ofCall(nodes []string, call string) []string {
	var own []string
	for _, node := range nodes {
		if strings.HasPrefix(node, call) {
			own = append(own, node)
		}
	}
	return own
}
