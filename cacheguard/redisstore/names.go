package redisstore

import (
	"strings"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// names makes the names of things in Redis:
//
//	value  <prefix>:<cache>:{<key>}
//	lease  <prefix>:<cache>:{<key>}:lease
//	waiters for the lease's end  <prefix>:<cache>:{<key>}:waiters
//	value of format version n above 1  <prefix>:<cache>:{<key>}:v<n>
//	value of an odd Options.Version  <prefix>:<cache>:{<key>}:odd, and so on
//	generations  <prefix>:{<cache>}:tags, and of the whole cache <prefix>:{<cache>}:all
//	permits  <prefix>:{<budget>}:permits, and <prefix>:{<budget>}:permits:wanted
//	channels  <prefix>:messages, <prefix>:messages:{<cache>}, <prefix>:messages:<inbox>
//
// The braces keep the names of a key in one slot of a cluster: Redis computes the slot from the
// part between the first "{" and the first "}" after it, unless that part is empty. Without an
// escape that part would be empty for an empty key and for a key that begins with "}". These keys
// get a backslash in front. A key that begins with a backslash gets one, too, so that no two keys
// have the same name.
//
// A prefix has no braces. So the first brace of a name comes after the prefix, or after the prefix
// and the cache's name. In the second case a colon in the cache's name would make the end of the
// prefix ambiguous. If a cache's name has a colon, segment escapes it and adds a colon; no other
// name of a value has two colons there.
type names struct{ prefix string }

func (n names) value(k cacheguard.Key) string {
	return n.prefix + ":" + segment(k.Cache) + ":{" + escape(k.Key) + k.Key + "}" +
		versions[k.Version]
}

// versions are the endings of the names of values.
var versions = [cacheguard.Versions]string{"", ":odd"}

// segment returns a cache's name as it is used inside the name of a value. A name that isn't empty
// and has no colons or braces is not changed. In any other name colons, braces and "%" are escaped,
// and a colon is added at the end. The added colon tells an escaped name from an unescaped name
// with a "%".
func segment(cache string) string {
	if cache != "" && !strings.ContainsAny(cache, ":{}") {
		return cache
	}
	return escaped.Replace(cache) + ":"
}

var escaped = strings.NewReplacer("%", "%25", ":", "%3A", "{", "%7B", "}", "%7D")

func escape(key string) string {
	if key == "" || key[0] == '}' || key[0] == '\\' {
		return `\`
	}
	return ""
}

// head returns the beginning that the names of all values, leases and lists of waiters of a cache
// share, and that no other name has.
func (n names) head(cache string) string { return n.prefix + ":" + segment(cache) + ":{" }

// values appends the names of many values of one cache to the arguments of a command. All names
// share one piece of memory.
func (n names) values(args []any, keys []cacheguard.Key) []any {
	head := n.head(keys[0].Cache)
	size := 0
	for _, k := range keys {
		size += len(head) + len(k.Key) + 2 + len(versions[k.Version])
	}
	var all strings.Builder
	all.Grow(size)
	for _, k := range keys {
		from := all.Len()
		all.WriteString(head)
		all.WriteString(escape(k.Key))
		all.WriteString(k.Key)
		all.WriteByte('}')
		all.WriteString(versions[k.Version])
		args = append(args, all.String()[from:])
	}
	return args
}

func (n names) lease(value string) string       { return value + ":lease" }
func (n names) waiters(value string) string     { return value + ":waiters" }
func (n names) next(value string) string        { return value + ":v2" }
func (n names) generations(cache string) string { return n.prefix + ":{" + cache + "}:tags" }
func (n names) whole(cache string) string       { return n.prefix + ":{" + cache + "}:all" }
func (n names) permits(budget string) string    { return n.prefix + ":{" + budget + "}:permits" }
func (n names) wanted(permits string) string    { return permits + ":wanted" }
func (n names) channel() string                 { return n.prefix + ":messages" }
func (n names) channelOf(cache string) string   { return n.channel() + ":{" + cache + "}" }
func (n names) inbox(id string) string          { return n.channel() + ":" + id }
func (n names) clock() string                   { return n.prefix + ":clock" }
