package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/promobserver"
)

// replica is one server of the shop, with a cache and connections of its own.
type replica struct {
	url      string
	listener net.Listener
	server   *http.Server
	cache    *catalogCache
	tally    *tally
}

// openReplica listens on addr and opens the replica's cache, so that the first request finds everything ready. It ends
// early when ctx does.
func openReplica(ctx context.Context, f *fleet, addr string) (*replica, error) {
	t := &tally{}
	metrics, err := promobserver.New(promobserver.Options{})
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(metrics); err != nil {
		return nil, err
	}
	cache, err := openCache(ctx, f.redisAddr, f.opts, cacheguard.Observers(t, metrics), f.log)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, errors.Join(err, cache.close(ctx))
	}
	ping := func(ctx context.Context) error { return cache.rdb.Ping(ctx).Err() }
	get := func(ctx context.Context) (categoryMap, error) { return cache.get(ctx, f.origin.load) }
	return &replica{
		url:      "http://" + listener.Addr().String(),
		listener: listener,
		server: &http.Server{
			Handler:           newHandler(get, f.stats, t, f.log, f.lab.routes, watched(f.db.PingContext, ping, registry)),
			ReadHeaderTimeout: 5 * time.Second,
			ErrorLog:          slog.NewLogLogger(f.log.Handler(), slog.LevelWarn),
		},
		cache: cache,
		tally: t,
	}, nil
}

// serve answers requests until ctx ends and then waits, for grace at most, for those that are under way.
func (r *replica) serve(ctx context.Context, grace time.Duration) error {
	stopped := make(chan error, 1)
	abandon := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		stopped <- r.server.Shutdown(ctx)
	})
	if err := r.server.Serve(r.listener); !errors.Is(err, http.ErrServerClosed) {
		abandon()
		return err
	}
	return <-stopped
}

// close ends the cache. Loads that run may finish until ctx ends.
func (r *replica) close(ctx context.Context) error {
	_ = r.listener.Close() // closed already, unless the replica never served
	return r.cache.close(ctx)
}
