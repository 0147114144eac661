package redisstore

import (
	"strings"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// names makes the names of things in Redis:
//
//	value  <prefix>:<cache>:{<key>}
//	lease  <prefix>:<cache>:{<key>}:lease
//	value of format version n above 1  <prefix>:<cache>:{<key>}:v<n>
//	generations  <prefix>:{<cache>}:tags
//	channel  <prefix>:messages
//
// The braces keep the names of a key in one slot of a cluster: Redis takes the part between the first "{" and the
// first "}" after it, unless that part is empty. It is empty for an empty key and for one that begins with "}"; those
// get a backslash in front, and so does a key that begins with a backslash, so that no two keys have one name.
type names struct{ prefix string }

func (n names) value(k cacheguard.Key) string {
	return n.prefix + ":" + k.Cache + ":{" + escape(k.Key) + k.Key + "}"
}

func escape(key string) string {
	if key == "" || key[0] == '}' || key[0] == '\\' {
		return `\`
	}
	return ""
}

// values makes the names of many values, in one piece of memory.
func (n names) values(keys []cacheguard.Key) []string {
	size := 0
	for _, k := range keys {
		size += len(n.prefix) + len(k.Cache) + len(k.Key) + 5
	}
	var all strings.Builder
	all.Grow(size)
	names := make([]string, len(keys))
	for i, k := range keys {
		from := all.Len()
		all.WriteString(n.prefix)
		all.WriteByte(':')
		all.WriteString(k.Cache)
		all.WriteString(":{")
		all.WriteString(escape(k.Key))
		all.WriteString(k.Key)
		all.WriteByte('}')
		names[i] = all.String()[from:]
	}
	return names
}

func (n names) lease(value string) string       { return value + ":lease" }
func (n names) next(value string) string        { return value + ":v2" }
func (n names) generations(cache string) string { return n.prefix + ":{" + cache + "}:tags" }
func (n names) channel() string                 { return n.prefix + ":messages" }
func (n names) clock() string                   { return n.prefix + ":clock" }
