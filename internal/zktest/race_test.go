package zktest

import (
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
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
