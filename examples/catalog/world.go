package main

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/examples/catalog/internal/lab"
	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

const (
	masters          = 3 // the number of masters for Redlock
	zookeeperTimeout = 15 * time.Second
)

// world contains the systems of the lab's runs: the shop's Redis and database, three independent
// embedded Redis servers, one server to which Redis fails over, and a ZooKeeper if there is one.
type world struct {
	lab.World
	servers []*miniredis.Miniredis // the masters, and the spare server
}

func openWorld(
	ctx context.Context, redisAddr string, db *database, zookeeper string,
) (*world, error) {
	w := &world{World: lab.World{Redis: redisAddr, DB: db.DB}}
	if err := w.open(ctx, zookeeper); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *world) open(ctx context.Context, zookeeper string) error {
	if _, err := w.DB.ExecContext(ctx, stage.SQLRows); err != nil {
		return fmt.Errorf("the table of the locks: %w", err)
	}
	for range masters + 1 {
		server, err := miniredis.Run()
		if err != nil {
			return fmt.Errorf("start an embedded Redis: %w", err)
		}
		server.ClockTTL(true)
		w.servers = append(w.servers, server)
		w.Masters = append(w.Masters, server.Addr())
	}
	w.Spare, w.Masters = w.Masters[masters], w.Masters[:masters]
	if zookeeper == "" {
		return nil
	}
	return w.connect(ctx, zookeeper)
}

// connect connects to ZooKeeper, so that a wrong address is found at the start.
func (w *world) connect(ctx context.Context, addr string) (err error) {
	if w.ZooKeeper, _, err = zk.Connect([]string{addr}, zookeeperTimeout,
		zk.WithLogger(silent{})); err != nil {
		return fmt.Errorf("zookeeper at %s: %w", addr, err)
	}
	answered := make(chan error, 1)
	go func() {
		_, _, err := w.ZooKeeper.Exists("/")
		answered <- err
	}()
	timer := time.NewTimer(zookeeperTimeout)
	defer timer.Stop()
	select {
	case err = <-answered:
	case <-timer.C:
		err = fmt.Errorf("no answer within %v", zookeeperTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("zookeeper at %s: %w", addr, err)
	}
	return nil
}

func (w *world) close() {
	for _, s := range w.servers {
		s.Close()
	}
	if w.ZooKeeper != nil {
		w.ZooKeeper.Close()
	}
}

// silent is a logger that drops the log of a library, because the caller gets the same errors.
type silent struct{}

func (silent) Printf(string, ...any) {}
