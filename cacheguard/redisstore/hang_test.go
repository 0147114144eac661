package redisstore_test

import (
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A cluster hangs when the process starts. After a few failures no caller waits for it.
func TestClusterHangsAtStart(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never answers
	must(t, err)
	defer l.Close()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{l.Addr().String()}})
	defer rdb.Close()
	const op = 1500 * time.Millisecond
	r := newReplica(t, "", newPrefix(), func(s *site) { s.rdb, s.store.OpTimeout = rdb, op })
	o := newOrigin("v")
	slow, waited, start := 0, time.Duration(0), time.Now()
	for range 40 {
		began := time.Now()
		r.get(t, "k", o.load).is(t, "v")
		if took := time.Since(began); took > op*3/4 {
			slow++
			waited += took
		}
	}
	// After each second without a wait, one more call asks for the clock and waits.
	rest := time.Since(start) - waited
	t.Logf("%d calls waited; the others took %v together", slow, rest)
	if slow > 10+int(rest/time.Second) || rest > 40*op/3 {
		t.Errorf("%d of 40 calls for one key waited for a cluster that doesn't answer, the others %v",
			slow, rest)
	}
}

// The first call of a process waits for a server that doesn't answer for OpTimeout, and not once
// for the clock and once more for the rest.
func TestServerHangsAtStart(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never answers
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	const op = 6 * time.Second
	for name, client := range clientKinds {
		if name == "cluster" {
			continue // its first call asks other nodes for the clock
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplica(t, "", newPrefix(), func(s *site) {
				s.rdb, s.store.OpTimeout = client(t, l.Addr().String()), op
			})
			began := time.Now()
			r.get(t, "k", newOrigin("v").load).is(t, "v")
			if took := time.Since(began); took > op*5/3 {
				t.Errorf("the first call took %v; want about %v", took, op)
			}
		})
	}
}
