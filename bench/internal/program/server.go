package program

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// server is the Redis that a run uses.
type server struct {
	addr, source string
	rdb          *redis.Client
	own          *redistest.Server // nil if it was there before
	embedded     *miniredis.Miniredis
}

// openRedisOrEmbedded is openRedis, but where there is no redis-server it takes one that is embedded in this process.
func openRedisOrEmbedded(addr string) (*server, error) {
	s, err := openRedis(addr)
	if !errors.Is(err, errNoRedis) {
		return s, err
	}
	embedded, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	embedded.ClockTTL(true) // otherwise nothing in it would ever expire
	return &server{
		addr: embedded.Addr(), source: "embedded (miniredis), for there is no redis-server on the PATH: slower, and nothing is counted in it",
		embedded: embedded, rdb: redis.NewClient(&redis.Options{Addr: embedded.Addr()}),
	}, nil
}

var errNoRedis = errors.New("no redis-server on the PATH to start; name one with -redis host:port")

// resetStats sets the server's counters to zero, if it has some.
func (s *server) resetStats(ctx context.Context) (counted bool, err error) {
	if s.embedded != nil {
		return false, nil
	}
	return true, redistest.ResetStats(ctx, s.rdb)
}

// openRedis connects to the Redis at addr, or starts one if that is empty.
func openRedis(addr string) (*server, error) {
	s := &server{addr: addr, source: "given with -redis"}
	if addr == "" {
		own, err := redistest.NewServer()
		if errors.Is(err, redistest.ErrNoServer) {
			return nil, errNoRedis
		} else if err != nil {
			return nil, err
		}
		s.addr, s.source, s.own = own.Addr(), "started for this run", own
	}
	s.rdb = redis.NewClient(&redis.Options{Addr: s.addr})
	return s, nil
}

func (s *server) close() {
	_ = s.rdb.Close()
	if s.own != nil {
		_ = s.own.Stop()
	}
	if s.embedded != nil {
		s.embedded.Close()
	}
}

// about is what a table says about where it was measured.
type about struct {
	Go        string `json:"go"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	CPUs      int    `json:"cpus"`
	Redis     string `json:"redis"`
	RedisFrom string `json:"redisFrom"`
	Date      string `json:"date"`
}

func (s *server) about(ctx context.Context) about {
	return about{
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(),
		Redis: redisVersion(ctx, s.rdb), RedisFrom: s.source, Date: time.Now().UTC().Format(time.DateOnly),
	}
}

func (a about) String() string {
	return fmt.Sprintf("%s %s/%s, %d CPUs, Redis %s %s, %s", a.Go, a.OS, a.Arch, a.CPUs, a.Redis, a.RedisFrom, a.Date)
}

func redisVersion(ctx context.Context, rdb *redis.Client) string {
	info, err := rdb.Info(ctx, "server").Result()
	if err != nil {
		return "of unknown version"
	}
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return "of unknown version"
}
