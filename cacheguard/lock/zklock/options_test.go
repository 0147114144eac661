package zklock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/cacheguard/lock/zklock"
)

func TestNewNamesAllThatIsWrong(t *testing.T) {
	_, err := zklock.New(nil,
		zklock.Options{Prefix: "locks", Lease: time.Millisecond, OpTimeout: time.Microsecond})
	if err == nil {
		t.Fatal("no error")
	}
	for _, word := range []string{"connection", "Prefix", "Lease", "OpTimeout"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("it doesn't name %s: %v", word, err)
		}
	}
}

func TestOptions(t *testing.T) {
	conn := nowhere(t)
	for name, test := range map[string]struct {
		opts zklock.Options
		fine bool
	}{
		"defaults":       {zklock.Options{}, true},
		"least lease":    {zklock.Options{Lease: 100 * time.Millisecond}, true},
		"no cap":         {zklock.Options{MaxHold: -1}, true},
		"negative lease": {zklock.Options{Lease: -1}, false},
		"long OpTimeout": {
			zklock.Options{Lease: time.Second, OpTimeout: 2 * time.Second}, false,
		},
		"negative OpTimeout": {zklock.Options{OpTimeout: -1}, false},
		"root":               {zklock.Options{Prefix: "/"}, false},
		"slash at the end":   {zklock.Options{Prefix: "/a/"}, false},
		"two slashes":        {zklock.Options{Prefix: "/a//b"}, false},
		"dots":               {zklock.Options{Prefix: "/a/../b"}, false},
		"control character":  {zklock.Options{Prefix: "/a\x00"}, false},
		"not UTF-8":          {zklock.Options{Prefix: "/\xff"}, false},
		"deep":               {zklock.Options{Prefix: "/a/b.c/d"}, true},
	} {
		l, err := zklock.New(conn, test.opts)
		if (err == nil) != test.fine {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = l.Close()
		}
	}
}

// nowhere returns a connection without a server.
func nowhere(t *testing.T) *zk.Conn {
	t.Helper()
	conn, err := connect("127.0.0.1:1", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}
