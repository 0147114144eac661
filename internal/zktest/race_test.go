package zktest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/internal/waittest"
)

// TestSuppressRace sets watches while connections are being made, which without SuppressRace in
// TestMain the race detector reports within a few hundred connections.
func TestSuppressRace(t *testing.T) {
	server := Shared(t)
	for range 50 {
		conn, _, err := zk.Connect([]string{server.Addr()}, session, zk.WithLogger(silent{}))
		if err != nil {
			t.Fatal(err)
		}
		var watchers sync.WaitGroup
		for range 8 {
			watchers.Go(func() {
				for range 10 {
					if _, _, _, err := conn.GetW("/"); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		watchers.Wait()
		conn.Close()
	}
}

// TestSuppressRaceOfClose closes connections while containers are created, which without
// SuppressRace the race detector reports.
func TestSuppressRaceOfClose(t *testing.T) {
	server := Shared(t)
	for range 50 {
		conn, _, err := zk.Connect([]string{server.Addr()}, session, zk.WithLogger(silent{}))
		if err != nil {
			t.Fatal(err)
		}
		run := rand.Uint64() // the server is shared with other runs of this test
		created := make(chan struct{}, 1000)
		var creators sync.WaitGroup
		for creator := range 8 {
			creators.Go(func() {
				for i := range 100 {
					path := fmt.Sprintf("/race-%x-%d-%d", run, creator, i)
					_, err := conn.CreateContainer(path, nil, zk.FlagContainer,
						zk.WorldACL(zk.PermAll))
					if err != nil {
						return
					}
					created <- struct{}{}
				}
			})
		}
		waittest.Next(t, "a container", created)
		conn.Close()
		creators.Wait()
	}
}
