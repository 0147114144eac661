package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// idleRow is the cost of one load and of one Invalidate while idle processes are connected. The
// idle processes take no part in the load or in the Invalidate.
type idleRow struct {
	Elsewhere int `json:"elsewhere"` // idle processes with another cache
	Same      int `json:"same"`      // idle processes with the same cache
	// Bytes that Redis sends for a load for which one other process waits, the median.
	Load     int64 `json:"loadBytes"`
	Commands int64 `json:"loadCommands"` // commands of this load, the median
	// Bytes that Redis sends for an Invalidate, the median.
	Invalidate int64 `json:"invalidationBytes"`
}

// idleRounds is the number of times that each cost is measured.
const idleRounds = 20

// bystanders are stores, each with its own subscription. To Redis they look like processes of a
// fleet. Only the first two of them load or wait.
type bystanders struct {
	ctx            context.Context
	rdb            *redis.Client
	prefix         string
	leader, waiter *cacheguard.Cache[string]
	// Receives a value when the waiter learns that another process has the lease.
	waits chan struct{}
	stops []func() error
}

// idle measures a fleet of two processes: first alone, then with idle processes of another cache,
// and then with idle processes of the same cache, too.
func (p growthPlan) idle(ctx context.Context, server *server) (rows []idleRow, err error) {
	b := &bystanders{
		ctx: ctx, rdb: server.rdb, prefix: "bench-" + freshPrefix(), waits: make(chan struct{}, 1),
	}
	defer func() {
		for i := range b.stops {
			err = errors.Join(err, b.stops[len(b.stops)-1-i]())
		}
	}()
	var own counter
	if b.leader, err = b.open("here", nil); err != nil {
		return nil, err
	}
	if b.waiter, err = b.open("here", b.waits); err != nil {
		return nil, err
	}
	if err := own.calibrate(ctx, b.rdb); err != nil {
		return nil, err
	}
	for _, add := range []struct {
		cache string
		row   idleRow
	}{
		{"", idleRow{}}, {"elsewhere", idleRow{Elsewhere: p.Idle}},
		{"here", idleRow{Elsewhere: p.Idle, Same: p.Idle}},
	} {
		for range add.row.Elsewhere {
			if _, err := b.open(add.cache, nil); err != nil {
				return nil, err
			}
		}
		if err := b.measure(&add.row, own); err != nil {
			return nil, err
		}
		rows = append(rows, add.row)
	}
	return rows, nil
}

// heldStore reports when its cache learns that another process has the lease.
type heldStore struct {
	*redisstore.Store
	held chan<- struct{}
}

func (s heldStore) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	ans, err := s.Store.Lease(ctx, k, ask)
	if err == nil && ans.State == cacheguard.LeaseHeld {
		select {
		case s.held <- struct{}{}:
		default:
		}
	}
	return ans, err
}

// open opens one more store with a cache. To Redis it looks like one more process.
func (b *bystanders) open(cache string, held chan<- struct{}) (*cacheguard.Cache[string], error) {
	quiet := slog.New(slog.DiscardHandler)
	store, err := contender.OpenStore(b.rdb, b.prefix)
	if err != nil {
		return nil, err
	}
	b.stops = append(b.stops, store.Close)
	c, err := cacheguard.New(heldStore{store, held},
		cacheguard.Options[string]{Name: cache, Logger: quiet})
	if err != nil {
		return nil, err
	}
	b.stops = append(b.stops, c.Close)
	return c, store.Warm(b.ctx)
}

func (b *bystanders) measure(row *idleRow, own counter) error {
	var loads, commands, changes []int64
	for i := range idleRounds {
		key := fmt.Sprint(row.Elsewhere, row.Same, i)
		sent, called, err := own.during(b.ctx, b.rdb, func() error { return b.load(key) })
		if err != nil {
			return err
		}
		loads, commands = append(loads, sent), append(commands, called)
		sent, _, err = own.during(b.ctx, b.rdb, func() error {
			return b.leader.Invalidate(b.ctx, key)
		})
		if err != nil {
			return err
		}
		changes = append(changes, sent)
	}
	row.Load, row.Commands, row.Invalidate = median(loads), median(commands), median(changes)
	return nil
}

// load makes one process load 1 KiB while another process waits for the value.
func (b *bystanders) load(key string) error {
	began, end := make(chan struct{}), make(chan struct{})
	results := make(chan error, 2)
	get := func(c *cacheguard.Cache[string], load cacheguard.LoadFunc[string]) {
		_, err := c.Get(b.ctx, key, load)
		results <- err
	}
	go get(b.leader, func(context.Context) (string, error) {
		close(began)
		<-end
		return strings.Repeat("x", 1024), nil
	})
	select {
	case <-began:
	case err := <-results:
		return fmt.Errorf("nothing was loaded: %w", err)
	}
	go get(b.waiter, func(context.Context) (string, error) {
		return "", errors.New("it loaded, too")
	})
	select {
	case <-b.waits:
	case err := <-results:
		return fmt.Errorf("nobody waited: %w", err)
	}
	close(end)
	return errors.Join(<-results, <-results)
}

// counter counts the bytes that Redis sends. It subtracts the known number of bytes for the
// counting itself.
type counter struct{ bytes int64 }

func (c *counter) calibrate(ctx context.Context, rdb *redis.Client) error {
	var all []int64
	for range idleRounds {
		sent, _, err := c.during(ctx, rdb, func() error { return nil })
		if err != nil {
			return err
		}
		all = append(all, sent)
	}
	c.bytes = median(all)
	return nil
}

func (c *counter) during(
	ctx context.Context, rdb *redis.Client, do func() error,
) (sent, commands int64, err error) {
	if err := redistest.ResetStats(ctx, rdb); err != nil {
		return 0, 0, err
	}
	before, err := sentBytes(ctx, rdb)
	if err != nil {
		return 0, 0, err
	}
	if err := do(); err != nil {
		return 0, 0, err
	}
	after, err := sentBytes(ctx, rdb)
	if err != nil {
		return 0, 0, err
	}
	all, pings, err := countCommands(ctx, rdb)
	return after - before - c.bytes, all - pings, err
}

// sentBytes returns the number of bytes that the server has sent to all clients.
func sentBytes(ctx context.Context, rdb *redis.Client) (int64, error) {
	n, err := serverSays(ctx, rdb, "stats", "total_net_output_bytes")
	return int64(n), err
}
