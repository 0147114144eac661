package zklock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/zklock"
)

func Example() {
	const session = 10 * time.Second
	conn, _, err := zk.Connect([]string{"zk1:2181", "zk2:2181", "zk3:2181"}, session)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	locker, err := zklock.New(conn, zklock.Options{Lease: session})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	ctx := context.Background()
	err = lock.Do(ctx, locker, "invoices/2026-11", func(ctx context.Context, held lock.Lock) error {
		// ctx ends when the lock is lost. Pass the token to the resource that you write to.
		fmt.Println("writing with token", held.Token())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
