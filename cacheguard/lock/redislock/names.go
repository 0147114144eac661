package redislock

// names are the names of the keys of a lock. A locker uses these keys and channels in Redis:
//
//	lock   <prefix>:{<name>}
//	line   <prefix>:{<name>}:line
//	seen   <prefix>:{<name>}:seen
//	fence  <prefix>:{<name>}:fence
//	given  <prefix>:{<name>}:given:<owner>
//	channel of a process  <prefix>:<process>
//
// The braces keep all keys of a lock in one slot of a cluster: Redis hashes the part between the
// first "{" and the first "}" after it, unless that part is empty. This part would be empty for a
// name that begins with "}", so a backslash is put in front of this name. A backslash is also put
// in front of a name that begins with a backslash, so that no two locks have the same keys.
type names struct{ lock, line, seen, fence string }

func namesOf(prefix, name string) names {
	escape := ""
	if name[0] == '}' || name[0] == '\\' {
		escape = `\`
	}
	lock := prefix + ":{" + escape + name + "}"
	return names{lock: lock, line: lock + ":line", seen: lock + ":seen", fence: lock + ":fence"}
}

// namesOfNobody returns the keys of a lock that nobody can have. They differ from all others,
// because a name that begins with a backslash gets a second one.
func namesOfNobody(prefix string) names {
	lock := prefix + `:{\}`
	return names{lock: lock, line: lock + ":line", seen: lock + ":seen", fence: lock + ":fence"}
}

// given returns the key that records for a short time that the owner has given the lock back.
// Because of this key, an Unlock whose reply was lost can be sent again.
func (n names) given(owner string) string { return n.lock + ":given:" + owner }
