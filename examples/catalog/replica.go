package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/promobserver"
	"github.com/cacheguard/cacheguard/cacheguard/statuspage"
)

// replica is one server of the shop, with its own caches and connections.
type replica struct {
	url      string
	listener net.Listener
	server   *http.Server
	caches   *caches
	tally    *tally
}

const (
	// answerTimeout is how long a client may take to read an answer after a handler that has taken
	// all of its time. The lab's runs last longer and have their own deadlines.
	answerTimeout = 15 * time.Second
	idleTimeout   = time.Minute

	// readTimeout is the time limit for the arrival of a request with its body. net/http reads the
	// rest of a small body before it sends the answer to a refused request. So if that rest doesn't
	// arrive, the answer comes when this time is over.
	readTimeout = 8 * time.Second

	// sendBuffer is the number of bytes that the kernel keeps on each connection for a client that
	// doesn't read.
	sendBuffer = 64 << 10
)

// lean is the server's ConnContext. It limits the send buffer. Without this limit, if a client
// doesn't read, Linux buffers megabytes before a write waits.
func lean(ctx context.Context, conn net.Conn) context.Context {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // an error doesn't matter
	}
	return ctx
}

// openReplica listens on addr and opens the replica's caches, so that everything is ready for the
// first request. If ctx ends, it returns early.
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
	status := statuspage.New(statuspage.Options{Keys: true})
	caches, err := openCaches(ctx, f, cacheguard.Observers(metrics, status), t)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, errors.Join(err, caches.close(ctx))
	}
	ping := func(ctx context.Context) error { return caches.rdb.Ping(ctx).Err() }
	s := &shop{
		tree: caches.trees.get, category: caches.category, rename: caches.rename, stats: f.stats,
		tally: t, log: f.log,
	}
	page := s.catalogRoute(caches.pages.Handler, f.opts.ttl, func() { f.pageRuns.Add(1) })
	u := &unused{conns: map[net.Conn]bool{}}
	r := &replica{
		url:      "http://" + listener.Addr().String(),
		listener: listener,
		server: &http.Server{
			Handler: newHandler(append([]string{f.opts.host}, f.opts.hosts...), labPage,
				f.lab.routes, s.routes, page, watched(f.db.PingContext, ping, registry, status)),
			ConnState:         u.note,
			ConnContext:       lean,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       readTimeout,
			WriteTimeout:      2*(loadTimeout(f.opts)) + answerTimeout,
			IdleTimeout:       idleTimeout,
			ErrorLog:          slog.NewLogLogger(f.log.Handler(), slog.LevelWarn),
		},
		caches: caches,
		tally:  t,
	}
	r.server.RegisterOnShutdown(u.close)
	r.server.RegisterOnShutdown(f.lab.stop)
	return r, nil
}

// serve answers requests until ctx ends. Then it waits for running requests, but no longer than
// grace. After that the clients of requests that still run lose their connections.
func (r *replica) serve(ctx context.Context, grace time.Duration) error {
	stopped := make(chan error, 1)
	abandon := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		err := r.server.Shutdown(ctx)
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: requests went on for more than %v", r.url, grace),
				r.server.Close())
		}
		stopped <- err
	})
	if err := r.server.Serve(r.listener); !errors.Is(err, http.ErrServerClosed) {
		abandon()
		return err
	}
	return <-stopped
}

// close closes the caches. Running loads may finish until ctx ends.
func (r *replica) close(ctx context.Context) error {
	_ = r.listener.Close() // closed already, unless the replica never served
	return r.caches.close(ctx)
}
