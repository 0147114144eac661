package zktest

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/internal/faultproxy"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

func TestProxyPassesAndCounts(t *testing.T) {
	s := Shared(t)
	p := StartProxy(t, s.Addr())
	conn := client(t, p.Addr(), session)
	create(t, conn, "/counted")
	_, _, changed, err := conn.GetW("/counted")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Delete("/counted", -1); err != nil {
		t.Fatal(err)
	}
	<-changed
	want := []Request{{"create", "/counted"}, {"getData", "/counted"}, {"delete", "/counted"}}
	if got := p.Requests(); !slices.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
	if n := p.Events(); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
	p.Reset()
	if len(p.Requests()) != 0 || p.Events() != 0 {
		t.Error("Reset keeps some")
	}
}

func TestLostReply(t *testing.T) {
	s := Shared(t)
	direct := client(t, s.Addr(), session)
	for path, then := range map[string]faultproxy.Then{"/hangup": Hangup, "/silence": Silence} {
		p := StartProxy(t, s.Addr())
		conn := client(t, p.Addr(), brief)
		other := p.LoseReply(func(r Request) bool { return r.Path == "/other" }, Hangup)
		lost := p.LoseReply(IsOp("create"), then)
		_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		if !errors.Is(err, zk.ErrConnectionClosed) {
			t.Errorf("%s: create: %v", path, err)
		}
		waittest.Next(t, "the fault", lost.Struck())
		if !exists(t, direct, path) {
			t.Errorf("%s: it was not carried out", path)
		}
		waittest.Until(t, "the client", func() bool {
			_, _, err := conn.Exists(path)
			return err == nil
		})
		if _, err := conn.Create(path+"2", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Errorf("%s: a second reply is lost, too: %v", path, err)
		}
		wantOpen(t, other.Struck(), "a fault struck what it doesn't match")
		for _, left := range []string{path, path + "2"} {
			if err := direct.Delete(left, -1); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestCutEndsConnections(t *testing.T) {
	s := Shared(t)
	p := StartProxy(t, s.Addr())
	conn := client(t, p.Addr(), session)
	create(t, conn, "/cut")
	id := conn.SessionID()
	_, _, gone, err := conn.GetW("/cut")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Refuse(true); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	if _, err := net.Dial("tcp", p.Addr()); err == nil {
		t.Error("it accepts while it refuses")
	}
	if err := p.Refuse(false); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the client", func() bool {
		_, _, err := conn.Exists("/cut")
		return err == nil
	})
	if conn.SessionID() != id {
		t.Error("another session")
	}
	if err := client(t, s.Addr(), session).Delete("/cut", -1); err != nil {
		t.Fatal(err)
	}
	<-gone // the watch has survived
}

func TestBlackholeSwallowsUntilItIsLifted(t *testing.T) {
	s := Shared(t)
	p := StartProxy(t, s.Addr())
	conn := client(t, p.Addr(), session)
	create(t, conn, "/hole")
	p.Blackhole(true)
	answered := make(chan struct{})
	go func() {
		_, _, _ = conn.Exists("/hole")
		close(answered)
	}()
	wantOpen(t, answered, "it passes")
	p.Blackhole(false)
	waittest.Next(t, "an answer", answered)
}

func TestFramesThatMakeNoSense(t *testing.T) {
	if _, err := readFrame(bytes.NewReader([]byte{0xff, 0, 0, 0})); err == nil {
		t.Error("a frame of 4 GB")
	}
	if _, err := readFrame(bytes.NewReader([]byte{0, 0, 0, 9, 1})); err == nil {
		t.Error("a frame that ends too soon")
	}
	for _, frame := range [][]byte{
		{0, 0, 0, 0}, {0, 0, 0, 2, 1, 1},
		{0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff}, // a path that is longer
		{0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff},
	} {
		if r := request(frame); r.Path != "" {
			t.Errorf("% x has the path %q", frame, r.Path)
		}
	}
}

func wantOpen(t *testing.T, happened <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-happened:
		t.Error(what)
	case <-time.After(moment):
	}
}
