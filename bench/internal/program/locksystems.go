package program

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/zklock"
	"github.com/cacheguard/cacheguard/cacheguard/lockstore"
	"github.com/cacheguard/cacheguard/internal/pgtest"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// lockSystem is the system in which a locker keeps its locks. The parent process starts it and
// passes its address to the child processes.
type lockSystem struct {
	start func(redis string) (where string, stop func(), err error)
	open  func(ctx context.Context, where string, lease time.Duration) (lock.Locker, func(), error)
}

// lockSystems are the systems that a stampede can use under the loader, by the protection's name.
var lockSystems = map[string]lockSystem{
	"redislock":  {thatRedis, openRedislock},
	"redlock":    {fiveRedis, openRedlock},
	"zklock":     {startZooKeeper, openZklock},
	"sqlite":     {sqliteFile, openSQLite},
	"postgresql": {startPostgreSQL, openPostgreSQL},
}

// lockSystemNames are the names, in the order in which they are listed.
var lockSystemNames = []string{"redislock", "redlock", "zklock", "sqlite", "postgresql"}

var ( // longer in tests
	benchLease = 3 * time.Second // the same as the loader's lease
	// The limit for a step in a system of locks; long, because the machine is busy.
	lockTimeout = time.Second
)

func thatRedis(redis string) (string, func(), error) { return redis, func() {}, nil }

func openRedislock(
	ctx context.Context, where string, lease time.Duration,
) (lock.Locker, func(), error) {
	rdb := redis.NewClient(&redis.Options{Addr: where, ContextTimeoutEnabled: true})
	l, err := redislock.New(rdb,
		redislock.Options{Lease: lease, OpTimeout: min(lockTimeout, lease/3)})
	if err == nil {
		err = l.Warm(ctx)
	}
	return l, func() { _ = l.Close(); _ = rdb.Close() }, err
}

func fiveRedis(string) (string, func(), error) {
	masters, where, err := startMasters()
	return where, masters.stop, err
}

// masters are the servers of a redlock.
type masters []*redistest.Server

func startMasters() (ms masters, where string, err error) {
	var addrs []string
	for range 5 {
		s, err := redistest.NewServer()
		if err != nil {
			ms.stop()
			return nil, "", err
		}
		ms, addrs = append(ms, s), append(addrs, s.Addr())
	}
	return ms, strings.Join(addrs, ","), nil
}

func (ms masters) stop() {
	for _, s := range ms {
		_ = s.Stop()
	}
}

func openRedlock(
	_ context.Context, where string, lease time.Duration,
) (lock.Locker, func(), error) {
	var masters []redis.UniversalClient
	for _, addr := range strings.Split(where, ",") {
		masters = append(masters,
			redis.NewClient(&redis.Options{
				Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
			}))
	}
	l, err := redlock.New(masters, redlock.Options{Lease: lease, NodeTimeout: lease / 10})
	return l, func() {
		_ = l.Close()
		for _, m := range masters {
			_ = m.Close()
		}
	}, err
}

func startZooKeeper(string) (string, func(), error) {
	s, err := zktest.NewServer()
	if err != nil {
		return "", nil, err
	}
	return s.Addr(), func() { _ = s.Stop() }, nil
}

func openZklock(_ context.Context, where string, lease time.Duration) (lock.Locker, func(), error) {
	conn, _, err := zk.Connect([]string{where}, lease, zk.WithLogInfo(false))
	if err != nil {
		return nil, nil, err
	}
	l, err := zklock.New(conn, zklock.Options{Lease: lease})
	return l, func() { _ = l.Close(); conn.Close() }, err
}

func sqliteFile(string) (string, func(), error) {
	dir, err := os.MkdirTemp("", "cacheguard-bench-*")
	if err != nil {
		return "", nil, err
	}
	return filepath.Join(dir, "locks.db"), func() { _ = os.RemoveAll(dir) }, nil
}

func openSQLite(
	ctx context.Context, where string, lease time.Duration,
) (lock.Locker, func(), error) {
	return openSQL(ctx, "sqlite",
		"file:"+where+"?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)", sqllock.SQLite,
		lease)
}

func startPostgreSQL(string) (string, func(), error) {
	s, err := pgtest.NewServer()
	if err != nil {
		return "", nil, err
	}
	return s.URL(), func() { _ = s.Stop() }, nil
}

func openPostgreSQL(
	ctx context.Context, where string, lease time.Duration,
) (lock.Locker, func(), error) {
	return openSQL(ctx, "pgx", where, sqllock.PostgreSQL, lease)
}

func openSQL(
	ctx context.Context, driver, where string, dialect sqllock.Dialect, lease time.Duration,
) (lock.Locker, func(), error) {
	db, err := sql.Open(driver, where)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(20) // PostgreSQL has a hundred connections for all processes
	l, err := sqllock.New(db,
		sqllock.Options{Dialect: dialect, Lease: lease, OpTimeout: min(lockTimeout, lease/3)})
	if err == nil {
		err = l.Create(ctx)
	}
	return l, func() { _ = l.Close(); _ = db.Close() }, err
}

// startLocks starts the system of a protection, if it needs one, and returns its address.
func startLocks(name, redis string) (where string, stop func(), err error) {
	s, ok := lockSystems[name]
	if !ok {
		return "", func() {}, nil
	}
	where, stop, err = s.start(redis)
	switch {
	case isMissing(err):
		return "", nil, fmt.Errorf("%s can't be had here: %w", name, err)
	case err != nil:
		return "", nil, fmt.Errorf("%s: %w", name, err)
	}
	return where, stop, nil
}

// warmUps is how often openLocks tries to lock a name. On a busy machine the first dials may take
// longer than the locker waits for an answer.
const warmUps = 50

// openLocks opens a locker, and locks a name once so that the locker dials.
func openLocks(
	ctx context.Context, name, where string, lease time.Duration,
) (lock.Locker, func(), error) {
	l, stop, err := lockSystems[name].open(ctx, where, lease)
	if err == nil {
		nothing := func(context.Context, lock.Lock) error { return nil }
		for range warmUps {
			err = lock.Do(ctx, l, fmt.Sprint("warm ", os.Getpid()), nothing)
			if err == nil || ctx.Err() != nil {
				break
			}
		}
	}
	if err != nil {
		if stop != nil {
			stop()
		}
		return nil, nil, err
	}
	return l, stop, nil
}

// lockPrefix is the prefix of the names of contenders that use a locker under the loader.
const lockPrefix = "lock-"

// lockContenders returns the loader with each locker under it. The system of the locks is started
// for the run.
func lockContenders() []contender.Contender {
	var all []contender.Contender
	for _, name := range lockSystemNames {
		all = append(all, contender.Contender{
			OwnClient: name == "redislock" || name == "redlock",
			Name:      lockPrefix + name, What: "cacheguard with the locks of " + name,
			Note: "What it asks of other servers than the one Redis is not counted.",
			Open: func(ctx context.Context, r contender.Rig) (contender.Protection, error) {
				return openUnderLocks(ctx, name, r)
			},
		})
	}
	return all
}

// underLocks closes the locker after the loader that uses it.
type underLocks struct {
	contender.Protection
	wrapped *lockstore.Store
	stop    func()
}

func openUnderLocks(
	ctx context.Context, name string, r contender.Rig,
) (contender.Protection, error) {
	locker, stop, err := openLocks(ctx, name, r.Locks, r.LockTTL)
	if err != nil {
		return nil, err
	}
	u := &underLocks{stop: stop}
	u.Protection, err = contender.OpenGuarded(ctx, r, nil, func(
		s cacheguard.Store,
	) cacheguard.Store {
		u.wrapped = lockstore.Wrap(s, locker)
		return u.wrapped
	})
	if err != nil {
		stop()
		return nil, err
	}
	return u, nil
}

func (u *underLocks) Close() error {
	err := errors.Join(u.Protection.Close(), u.wrapped.Close())
	u.stop()
	return err
}

// startLocksOf starts the system of a contender's locks, if it has locks.
func startLocksOf(c contender.Contender, redis string) (where string, stop func(), err error) {
	return startLocks(strings.TrimPrefix(c.Name, lockPrefix), redis)
}
