package redislock

// names makes the names of things in Redis:
//
//	lock   <prefix>:{<name>}
//	line   <prefix>:{<name>}:line
//	seen   <prefix>:{<name>}:seen
//	fence  <prefix>:{<name>}:fence
//	given  <prefix>:{<name>}:given:<owner>
//	channel of a process  <prefix>:<process>
//
// The braces keep the names of a lock in one slot of a cluster: Redis takes the part between the
// first "{" and the first "}" after it, unless that part is empty. It is empty for a name that
// begins with "}": that gets a backslash in front, and so does one that begins with a backslash, so
// that no two locks have one name.
type names struct{ lock, line, seen, fence string }

func namesOf(prefix, name string) names {
	escape := ""
	if name[0] == '}' || name[0] == '\\' {
		escape = `\`
	}
	lock := prefix + ":{" + escape + name + "}"
	return names{lock: lock, line: lock + ":line", seen: lock + ":seen", fence: lock + ":fence"}
}

// namesOfNobody are the names of a lock that nobody can have: a name that begins with a backslash
// gets another one.
func namesOfNobody(prefix string) names {
	lock := prefix + `:{\}`
	return names{lock: lock, line: lock + ":line", seen: lock + ":seen", fence: lock + ":fence"}
}

// given is where it stands for a moment that an owner has given the lock back, so that it can ask
// again.
func (n names) given(owner string) string { return n.lock + ":given:" + owner }
