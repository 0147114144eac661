package report

import "strings"

// Classes are the classes of the causes that errors name, for metrics. They are few words, and
// always the same ones. The first class is for all causes that belong to no other class.
var Classes = [...]string{
	"other", "unreachable", "no_answer", "closed", "connections", "auth", "rights", "memory",
	"read_only", "busy", "cluster", "foreign",
}

// classes has the class of each cause, by the beginning of the cause.
var classes = []struct{ cause, class string }{
	{"can't be reached", "unreachable"},
	{"connected, and no answer", "no_answer"},
	{"no answer", "no_answer"},
	{"no connection is free", "connections"},
	{"it has too many clients", "connections"},
	{"no connection", "closed"},
	{"the connection was closed", "closed"},
	{"the client is closed", "closed"},
	{"authentication failed", "auth"},
	{"it is in protected mode", "auth"},
	{"the Redis user lacks a right", "rights"},
	{"its memory is full", "memory"},
	{"it is read-only", "read_only"},
	{"too few replicas", "read_only"},
	{"it can't save to disk", "read_only"},
	{"it is busy", "busy"},
	{"it is loading", "busy"},
	{"a part of the cluster is down", "cluster"},
	{"it is a node of a cluster", "cluster"},
	{"a key holds what others have written", "foreign"},
	{"it lacks a command", "foreign"},
	{"what answers is no Redis", "foreign"},
}

// Class returns the index in [Classes] for an error. An error that names no cause is in the first
// class.
func Class(err error) int {
	if err == nil {
		return 0
	}
	_, cause := Where(err)
	for _, c := range classes {
		if strings.HasPrefix(cause, c.cause) {
			for i, class := range Classes {
				if class == c.class {
					return i
				}
			}
		}
	}
	return 0
}
