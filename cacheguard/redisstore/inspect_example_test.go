package redisstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// The example shows the entries in Redis under a key, and what its callers get. The command inspect
// shows the same in a terminal.
func ExampleStore_Inspect() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer rdb.Close()
	store, err := redisstore.New(rdb, redisstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	found, err := store.Inspect(context.Background(), "product", "42")
	if err != nil {
		log.Fatal(err)
	}
	if found.State == redisstore.StateUnreadable { // perhaps it is of another Options.Version
		found, err = store.InspectVersion(context.Background(), "product", "42", 2)
		if err != nil {
			log.Fatal(err)
		}
	}
	if found.State == redisstore.StateInvalid {
		fmt.Print(found) // the report says which tag was invalidated, and when
	}
}
