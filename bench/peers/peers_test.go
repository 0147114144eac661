package main

import (
	"os"
	"strings"
	"testing"

	"github.com/zeromicro/go-zero/core/logx"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/bench/internal/contender/contendertest"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

func TestMain(m *testing.M) {
	logx.Disable()
	_ = os.Setenv(contender.OpTimeoutEnv, "4s") // on a busy machine Redis can be late by seconds
	os.Exit(redistest.Main(m))
}

// Each library passes the checks of all contenders, except where it deliberately behaves
// differently.
func TestEachPeer(t *testing.T) {
	contendertest.Each(t, redistest.Shared(t).Addr(), peers.Contenders,
		map[string]contendertest.Exception{
			// It writes to its distributed storage on a separate goroutine.
			"sturdyc": {WritesBehind: true},
			// Only StrongConsistency waits for the load after TagAsDeleted2.
			"rockscache": {StaleOnce: true},

			"rueidis-cache": {HearsLater: true}, // see rueidisCache

			"redisio-recipe": {
				LooksOnce: true,
			}, // the recipe doesn't read again when it has the lock
		})
}

// The note of a peer begins with its version in this program, and the note names the peer's
// advantages.
func TestNotes(t *testing.T) {
	for _, c := range peers.Contenders {
		if words := strings.Fields(c.Note); c.What == "" || len(words) < 3 ||
			!strings.HasPrefix(words[1], "v") || c.Better == "" {
			t.Errorf("%s: %q, %q, %q", c.Name, c.What, c.Note, c.Better)
		}
	}
}
