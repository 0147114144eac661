package redisstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// A program reports at its start what is wrong with its Redis.
func ExampleStore_Diagnose() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer rdb.Close()
	store, err := redisstore.New(rdb, redisstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if d := store.Diagnose(context.Background()); d.Err() != nil {
		fmt.Print(d)
	}
}
