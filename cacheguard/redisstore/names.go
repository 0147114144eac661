package redisstore

import (
	"strings"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// names makes the names of things in Redis:
//
//	value  <prefix>:<cache>:{<key>}
//	lease  <prefix>:<cache>:{<key>}:lease
//	who waits for its end  <prefix>:<cache>:{<key>}:waiters
//	value of format version n above 1  <prefix>:<cache>:{<key>}:v<n>
//	value of an odd Options.Version  <prefix>:<cache>:{<key>}:odd, and so on
//	generations  <prefix>:{<cache>}:tags, and of the whole cache <prefix>:{<cache>}:all
//	permits  <prefix>:{<budget>}:permits, and <prefix>:{<budget>}:permits:wanted
//	channels  <prefix>:messages, <prefix>:messages:{<cache>}, <prefix>:messages:<inbox>
//
// The braces keep the names of a key in one slot of a cluster: Redis takes the part between the
// first "{" and the first "}" after it, unless that part is empty. It is empty for an empty key and
// for one that begins with "}"; those get a backslash in front, and so does a key that begins with
// a backslash, so that no two keys have one name.
//
// A prefix has no braces, so the first one ends it, or it and the cache. There a cache's name must
// not have a colon, or nobody could say where the prefix ends: one that has stands as segment says,
// with two colons behind it, which no other name of a value has.
type names struct{ prefix string }

func (n names) value(k cacheguard.Key) string {
	return n.prefix + ":" + segment(k.Cache) + ":{" + escape(k.Key) + k.Key + "}" + versions[k.Version]
}

// versions end the names of values.
var versions = [cacheguard.Versions]string{"", ":odd"}

// segment is a cache's name inside the name of a value. Names without colon and braces stand as
// they are; in the others these and "%" are escaped, and a colon comes behind. A usual name that
// has a "%" so is no other one's escape.
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

// head is what the names of all that stands under keys of a cache begin with, and no others.
func (n names) head(cache string) string { return n.prefix + ":" + segment(cache) + ":{" }

// values appends the names of many values of one cache, which are one piece of memory, to the
// arguments of a command.
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
