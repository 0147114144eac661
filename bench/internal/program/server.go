package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
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
	own          backend // nil if the server ran before
	embedded     bool
}

// backend is a Redis that was started for the run.
type backend interface {
	Kill()          // like a crash
	Restart() error // on the same port, without data
	Stop() error
}

// miniature is an embedded Redis.
type miniature struct{ *miniredis.Miniredis }

func (m miniature) Kill() {
	m.Close()
	m.FlushAll()
}

func (m miniature) Stop() error {
	m.Close()
	return nil
}

// These are the help texts of -redis.
const (
	redisHelp           = "host:port of a Redis without a password or TLS; the run resets its counters, and leaves keys bench:..., lock:..., handover:... and cg:... there, some of them without an end; default: the run starts a redis-server"
	redisOrEmbeddedHelp = redisHelp + ", or embeds a Redis if there is no redis-server"
)

// openRedisOrEmbedded is like openRedis. But if there is no redis-server, it uses a Redis that is
// embedded in this process.
func openRedisOrEmbedded(ctx context.Context, addr string) (*server, error) {
	s, err := openRedis(ctx, addr)
	if !errors.Is(err, errNoRedis) {
		return s, err
	}
	embedded, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	embedded.ClockTTL(true) // otherwise no key in it would ever expire
	return &server{
		addr:   embedded.Addr(),
		source: "embedded (miniredis), for there is no redis-server on the PATH: slower, and nothing is counted in it",
		own:    miniature{embedded}, embedded: true,
		rdb: redis.NewClient(&redis.Options{Addr: embedded.Addr()}),
	}, nil
}

var errNoRedis = errors.New("no redis-server on the PATH to start; name one with -redis host:port")

// resetStats sets the server's counters to zero, if it has counters.
func (s *server) resetStats(ctx context.Context) (counted bool, err error) {
	if s.embedded {
		return false, nil
	}
	return true, redistest.ResetStats(ctx, s.rdb)
}

// openRedis connects to the Redis at addr. If addr is empty, it starts a Redis.
func openRedis(ctx context.Context, addr string) (*server, error) {
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
	s.rdb = redis.NewClient(&redis.Options{Addr: s.addr, ContextTimeoutEnabled: true})
	if addr != "" {
		if err := s.try(ctx); err != nil {
			s.close()
			return nil, usageError(fmt.Sprintf("-redis %s: %v", addr, err))
		}
	}
	return s, nil
}

// try tests an existing Redis: it writes a key, and resets and reads the counters. So if the Redis
// refuses one of these commands, this is reported once, before the run starts.
func (s *server) try(ctx context.Context) error {
	if err := reach(ctx, s.rdb, s.addr); err != nil {
		return err
	}
	key := freshPrefix() + "try"
	if err := s.rdb.Set(ctx, key, "", time.Minute).Err(); err != nil {
		return fmt.Errorf("it can't be written to: %w", err)
	}
	if err := errors.Join(s.rdb.Del(ctx, key).Err(), redistest.ResetStats(ctx, s.rdb)); err != nil {
		return err
	}
	if _, err := redistest.CommandStats(ctx, s.rdb); err != nil {
		return fmt.Errorf("it doesn't say what it was asked: %w", err)
	}
	return nil
}

// reach returns an error if a Redis doesn't reply to its client.
func reach(ctx context.Context, rdb *redis.Client, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	// go-redis would try again and again, and log each time.
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return errors.Join(conn.Close(), rdb.Ping(ctx).Err())
}

func (s *server) close() {
	_ = s.rdb.Close()
	if s.own != nil {
		_ = s.own.Stop()
	}
}

// about describes the machine and the Redis of a measurement.
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
		Redis: redisVersion(ctx, s.rdb), RedisFrom: s.source,
		Date: time.Now().UTC().Format(time.DateOnly),
	}
}

func (a about) String() string {
	return fmt.Sprintf("%s %s/%s, %d CPUs, Redis %s %s, %s", a.Go, a.OS, a.Arch, a.CPUs, a.Redis,
		a.RedisFrom, a.Date)
}

func redisVersion(ctx context.Context, rdb *redis.Client) string {
	return cmp.Or(serverInfo(ctx, rdb, "server", "redis_version"), "of unknown version")
}

// serverInfo returns a value of the server's INFO, or "" if there is none.
func serverInfo(ctx context.Context, rdb *redis.Client, section, name string) string {
	for line := range strings.Lines(rdb.Info(ctx, section).Val()) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// serverSays returns a value of serverInfo as a number.
func serverSays(ctx context.Context, rdb *redis.Client, section, name string) (float64, error) {
	n, err := strconv.ParseFloat(serverInfo(ctx, rdb, section, name), 64)
	if err != nil {
		return 0, fmt.Errorf("INFO %s has no %s: %w", section, name, err)
	}
	return n, nil
}
