package zklock_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/cacheguard/cacheguard/cacheguard/lock/zklock"
)

func TestNamesAreLegalNodes(t *testing.T) {
	for name, want := range map[string]string{
		"invoices.2026-11": "/p/invoices.2026-11", ".": "/p/%2E", "..": "/p/%2E%2E",
		"...": "/p/...", "%2E": "/p/%252E",
		"a/b": "/p/a%2Fb", "\x00": "/p/%00", "é": "/p/%C3%A9", "\xff": "/p/%FF",
		"zookeeper": "/p/zookeeper",
	} {
		if got := zklock.DirOf("/p", name); got != want {
			t.Errorf("%q is %s, want %s", name, got, want)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, name := range []string{
		"a", "/", ".", "..", "%", "%2E", "\x00", "\xff\xfe", "a b", "ü", "\u2028",
	} {
		f.Add(name, name+"x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		dir := zklock.DirOf("", a)
		if (dir == zklock.DirOf("", b)) != (a == b) {
			t.Errorf("%q and %q: %s", a, b, dir)
		}
		node := dir[1:]
		if a == "" {
			return
		}
		bad := func(r rune) bool { return r == '/' || r > unicode.MaxASCII || unicode.IsControl(r) }
		if node == "" || node == "." || node == ".." || strings.ContainsFunc(node, bad) {
			t.Errorf("%q is the node %q", a, node)
		}
	})
}

func TestWhoStandsBefore(t *testing.T) {
	for _, test := range []struct {
		nodes  string
		node   string
		before string
		there  bool
	}{
		{"", "_c_a-lock-0000000001", "", false},
		{"_c_a-lock-0000000001", "_c_a-lock-0000000001", "", true},
		{"_c_b-lock-0000000002 _c_a-lock-0000000001", "_c_a-lock-0000000001", "", true},
		// Exactly one node is directly before, in whatever order the nodes are listed.
		{
			"c-lock-0000000003 a-lock-0000000001 d-lock-0000000004 b-lock-0000000002",
			"d-lock-0000000004", "c-lock-0000000003", true,
		},
		{"a-lock-0000000001 b-lock-0000000002", "d-lock-0000000004", "b-lock-0000000002", false},
		// Only the number counts, not the part before it.
		{"z-lock-0000000001 a-lock-0000000002", "a-lock-0000000002", "z-lock-0000000001", true},
		{"lock-0000000009 a-lock-0000000010", "a-lock-0000000010", "lock-0000000009", true},
		// Other nodes aren't in the queue.
		{
			"config a-lock- x-lock-12a y-lock-99999999999 b-lock-0000000002", "b-lock-0000000002",
			"", true,
		},
		{"config", "config", "", false},
		// The numbers wrap around.
		{"a-lock-2147483647 b-lock--2147483648", "b-lock--2147483648", "a-lock-2147483647", true},
		{"a-lock-2147483647 b-lock--2147483648", "a-lock-2147483647", "", true},
		{"a-lock--0000000001 b-lock-0000000000", "b-lock-0000000000", "a-lock--0000000001", true},
	} {
		before, there := zklock.BeforeIn(strings.Fields(test.nodes), test.node)
		if before != test.before || there != test.there {
			t.Errorf("%s among %q: %q, %v; want %q, %v", test.node, test.nodes, before, there,
				test.before, test.there)
		}
	}
}
