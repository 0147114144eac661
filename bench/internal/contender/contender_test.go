package contender_test

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/bench/internal/contender/contendertest"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

func TestMain(m *testing.M) {
	_ = os.Setenv(contender.OpTimeoutEnv, "4s") // on a busy machine Redis can be late by seconds
	os.Exit(redistest.Main(m))
}

func TestEachContender(t *testing.T) {
	contendertest.Each(t, redistest.Shared(t).Addr(), contender.All(),
		map[string]contendertest.Exception{
			"none":      {EachLoads: true},
			"http-none": {EachLoads: true, KeepsNothing: true},
		})
}

// The contenders of only some commands pass the same checks, as far as their command needs them.
func TestSpecialContenders(t *testing.T) {
	some, err := contender.Named(contender.Special, "get", "flight", "cacheguard-early+swr",
		"cacheguard-stale", "cacheguard-stale-if-error")
	if err != nil {
		t.Fatal(err)
	}
	contendertest.Each(t, redistest.Shared(t).Addr(), some, map[string]contendertest.Exception{
		"get": {EachLoads: true},
	})
}

// A wrong value of the variable is reported, because results with the default would be taken for
// results with the value.
func TestWrongOpTimeout(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	for _, wrong := range []string{"soon", "1ms"} {
		t.Setenv(contender.OpTimeoutEnv, wrong)
		store, err := contender.OpenStore(rdb, "")
		if err == nil {
			_ = store.Close()
			t.Errorf("%s is taken for a time", wrong)
		}
	}
}

func TestNamed(t *testing.T) {
	if _, err := contender.Named(contender.All(), "none", "magic"); err == nil {
		t.Error("there is a contender magic")
	}
	seen := map[string]bool{}
	for _, c := range contender.All() {
		if seen[c.Name] || c.What == "" {
			t.Errorf("%+v", c)
		}
		seen[c.Name] = true
	}
}
