package storetest

import (
	"fmt"
	"strings"

	"github.com/cacheguard/cacheguard/cacheguard"
)

var keyCases = []spec{
	{"keys of any bytes", apart, keysOfAnyBytes},
	{"keys of one byte", apart, keysOfOneByte},
	{"keys of several caches", apart, keysOfCaches},
}

// trickyKeys are keys to which a store may give the same name by mistake. They have the braces that
// a cluster looks for, the endings and separators with which stores build names, and common escapes
// of other keys in this list.
func trickyKeys() []string {
	keys := []string{
		"", " ", "a", "A", "a ", " a", "ä", "a\u0308", "日本語",
		"{", "}", "{}", "}{", "{}{}", "{{}}", "}}", "{{", "a}", "{a}", "{a", "}a", "a{", "{}a",
		"a{}b", "{a}{b}",
		"lease", ":lease", "a:lease", "a}:lease", "{a}:lease", "}:lease", "{}:lease",
		":lease:lease", "lease:a",
		":", "::", ":a", "a:", "a:a", "*", "a*", "?", "[a]", "/", "//", "a/b", "a/../b", ".", "..",
		"\\", "\\}", "'", "\"",
		"\x00", "a\x00", "a\x00b", "\x00a", "\x00\x00", "\r\n", "\n", "\r", "a\r\nSET a b\r\n",
		"\t", "\x7f",
		"\xff", "\xfe\xff", "\xc3\x28", "\xed\xa0\x80", "\x80",
		"%", "%%", "%7D", "%7d", "%257D", "%00", "%", "\\x7d", "\\u007d", "}\\", "=7D", "7d", "7D",
		"x7d", "0x7d",
		"fQ", "fQ==", "fQ=", "_", "-", "~", "#", "#7d", "!", "0", "00", "1", "nil", "null", "empty",
		"(empty)", "<empty>",
		strings.Repeat("k", 600), strings.Repeat("k", 599) + "l", strings.Repeat("k", 599),
		strings.Repeat("}", 600), strings.Repeat("{", 600), strings.Repeat("\x00", 600),
		strings.Repeat("\xff", 600),
	}
	seen := make(map[string]bool, len(keys))
	unique := keys[:0]
	for _, k := range keys {
		if !seen[k] {
			seen[k] = true
			unique = append(unique, k)
		}
	}
	return unique
}

func keysOfAnyBytes(e *env) {
	var keys []cacheguard.Key
	for _, k := range trickyKeys() {
		keys = append(keys, e.key(k))
	}
	e.differ(keys)
}

func keysOfOneByte(e *env) {
	var keys []cacheguard.Key
	for b := range 256 {
		keys = append(keys, e.key(string([]byte{byte(b)})))
	}
	e.differ(keys)
}

// keysOfCaches uses pairs of a cache's name and a key that give the same text if they are joined in
// one way or another. The names of caches have no braces, because cacheguard.New refuses braces.
func keysOfCaches(e *env) {
	var keys []cacheguard.Key
	for _, cache := range []string{
		"", ":", "a", ":a", "a:", "a:a", ":lease", "a:lease", "/a", "a/a", "\x00", "a\x00",
	} {
		for _, key := range []string{
			"", ":", "a", ":a", "a:a", "a:lease", "{a", "{a}", "a}:{a", "/a", "a/a", "\x00",
			"\x00a",
		} {
			keys = append(keys, cacheguard.Key{Cache: e.cache + cache, Key: key})
		}
	}
	e.differ(keys)
}

// differ runs a load for each key, and checks that no load finds the data of another key. It takes
// the leases of all keys before it stores the first value.
func (e *env) differ(keys []cacheguard.Key) {
	e.Helper()
	grants := make([]cacheguard.Grant, len(keys))
	for i, k := range keys {
		token := e.token()
		answer := e.ask(e.a, k, cacheguard.LeaseAsk{Token: token})
		if answer.State != cacheguard.LeaseGranted {
			e.Fatalf("lease of key %q of cache %q: %s; want it granted, for only other keys were used",
				k.Key, k.Cache, describe(answer))
		}
		grants[i] = answer.Grant
	}
	frames := make([][]byte, len(keys))
	for i, k := range keys {
		frames[i] = e.frame(grants[i].Token, fmt.Sprintf("%q of %q", k.Key, k.Cache))
		e.stored(e.b, k, grants[i], frames[i])
	}
	for i, k := range keys {
		e.value(k, frames[i])
	}
	// The keys are removed one after another. Each removal must affect only its own key.
	for i, k := range keys {
		e.value(k, frames[i])
		e.invalidate(e.a, k)
		e.noValue(k)
	}
}
