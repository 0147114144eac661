package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/storetest"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// TestConformanceSentinel finds the server through a sentinel, as a client that follows failovers does.
func TestConformanceSentinel(t *testing.T) {
	server := redistest.Start(t)
	sentinel := startSentinel(t, server.Addr())
	open := func(t *testing.T) redis.UniversalClient {
		rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "master", SentinelAddrs: []string{sentinel}, ContextTimeoutEnabled: true})
		t.Cleanup(func() { must(t, rdb.Close()) })
		return rdb
	}
	other := newClient(t, server.Addr())
	storetest.Run(t, func(t *testing.T) storetest.Fleet {
		must(t, other.FlushDB(t.Context()).Err())
		return openFleet(t, open(t), open(t), other)
	})
}

// startSentinel starts a sentinel that watches one server, and returns its address once it knows the server.
func startSentinel(t *testing.T, master string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	must(t, l.Close())
	_, port, _ := net.SplitHostPort(addr)
	host, masterPort, _ := net.SplitHostPort(master)
	config := filepath.Join(t.TempDir(), "sentinel.conf") // it writes to the file
	must(t, os.WriteFile(config, fmt.Appendf(nil, "port %s\nbind 127.0.0.1\nsentinel monitor master %s %s 1\n", port, host, masterPort), 0o600))
	cmd := exec.Command("redis-server", config, "--sentinel")
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})

	rdb := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		if found, err := rdb.GetMasterAddrByName(ctx, "master").Result(); err == nil && len(found) == 2 {
			return addr
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatal("the sentinel doesn't answer")
		}
	}
}
