package zktest

import (
	"fmt"
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
	for n := range 50 {
		conn, _, err := zk.Connect([]string{server.Addr()}, session, zk.WithLogger(silent{}))
		if err != nil {
			t.Fatal(err)
		}
		created := make(chan struct{}, 1000)
		var creators sync.WaitGroup
		for creator := range 8 {
			creators.Go(func() {
				for i := range 100 {
					_, err := conn.CreateContainer(fmt.Sprintf("/race-%d-%d-%d", n, creator, i), nil,
						zk.FlagContainer, zk.WorldACL(zk.PermAll))
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
