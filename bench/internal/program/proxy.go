package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// proxyPlan contains the settings of proxy.
type proxyPlan struct {
	Listen, Redis string
	Origin        *url.URL
	Time          time.Duration
	Options       middleware.Options
}

const proxyGrace = 5 * time.Second // the time for running requests at the end

// proxy serves an origin through the middleware until ctx ends, or for -time. With it, a public
// test-suite for HTTP caches can test the middleware.
func proxy(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	p, err := parseProxy(args, stderr)
	if err != nil {
		return err
	}
	if p.Time > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.Time)
		defer cancel()
	}
	store, closeStore, err := p.store(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	p.Options.Logger = slog.New(slog.NewTextHandler(stderr,
		&slog.HandlerOptions{Level: slog.LevelWarn}))
	cache, err := middleware.New(store, p.Options)
	if err != nil { // the Options contain only values of flags
		return usageError(err.Error())
	}
	defer func() { err = errors.Join(err, cache.Close()) }()

	listener, err := net.Listen("tcp", p.Listen)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           cache.Handler(p.origin(stderr)),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          slog.NewLogLogger(p.Options.Logger.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintf(stdout, "http://%s\n", listener.Addr())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), proxyGrace)
	defer cancel()
	if server.Shutdown(grace) != nil {
		_ = server.Close() // requests that still run have had their time
	}
	<-served
	return nil
}

func parseProxy(args []string, stderr io.Writer) (p proxyPlan, err error) {
	flags := newFlags("bench proxy", stderr)
	o := &p.Options
	flags.StringVar(&p.Listen, "listen", "127.0.0.1:0",
		"host:port to listen on; the address is the first line that is printed")
	origin := flags.String("origin", "",
		"http://host:port of the server to put the cache in front of; required")
	flags.StringVar(&p.Redis, "redis", "",
		"host:port of a Redis to use; default: this process' memory")
	flags.DurationVar(&p.Time, "time", 0, "end after so long; default: when told to by a signal")
	flags.DurationVar(&o.DefaultTTL, "default-ttl", 0, "Options.DefaultTTL")
	flags.DurationVar(&o.NegativeTTL, "negative-ttl", 0, "Options.NegativeTTL")
	flags.Float64Var(&o.Heuristic, "heuristic", 0, "Options.Heuristic")
	flags.DurationVar(&o.StaleWhileRevalidate, "stale-while-revalidate", 0,
		"Options.StaleWhileRevalidate")
	flags.DurationVar(&o.StaleIfError, "stale-if-error", 0, "Options.StaleIfError")
	flags.DurationVar(&o.Keep, "keep", 0, "Options.Keep")
	flags.DurationVar(&o.HitForMiss, "hit-for-miss", 0, "Options.HitForMiss")
	flags.IntVar(&o.MaxBody, "max-body", 0, "Options.MaxBody")
	flags.IntVar(&o.LocalBytes, "local", 0, "Options.LocalBytes")
	flags.BoolVar(&o.IgnoreRequestDirectives, "ignore-request-directives", false,
		"Options.IgnoreRequestDirectives")
	flags.BoolVar(&o.InvalidateLocations, "invalidate-locations", false,
		"Options.InvalidateLocations")
	flags.BoolVar(&o.StorePosts, "store-posts", false, "Options.StorePosts")
	normalize := flags.String("normalize", "", "Options.Normalize, separated by commas")
	flags.BoolVar(&o.ShowKey, "show-key", false, "Options.ShowKey")
	targeted := flags.String("targeted", "", "Options.TargetedFields, separated by commas")
	if err := parse(flags, args); err != nil {
		return p, err
	}
	if *targeted != "" {
		o.TargetedFields = strings.Split(*targeted, ",")
	}
	if *normalize != "" {
		o.Normalize = strings.Split(*normalize, ",")
	}
	p.Origin, err = url.Parse(*origin)
	if err != nil || p.Origin.Host == "" ||
		p.Origin.Scheme != "http" && p.Origin.Scheme != "https" {
		return p, usageError(fmt.Sprintf("-origin is %q, it must be an http or https URL", *origin))
	}
	if bare := p.Origin.Scheme + "://" + p.Origin.Host; strings.TrimSuffix(*origin, "/") != bare {
		return p, usageError(
			fmt.Sprintf("-origin is %q, it must have nothing but scheme, host and port: %s",
				*origin, bare))
	}
	return p, within("time", p.Time, 0, 24*time.Hour)
}

// store returns the store of the cache.
func (p proxyPlan) store(
	ctx context.Context,
) (store cacheguard.Store, closeAll func() error, err error) {
	if p.Redis == "" {
		s := memstore.New(memstore.Options{})
		return s, s.Close, nil
	}
	rdb := redis.NewClient(&redis.Options{Addr: p.Redis, ContextTimeoutEnabled: true})
	if err := reach(ctx, rdb, p.Redis); err != nil {
		return nil, nil,
			errors.Join(usageError(fmt.Sprintf("-redis %s: %v", p.Redis, err)), rdb.Close())
	}
	opTimeout, err := contender.OpTimeout()
	if err != nil {
		return nil, nil, errors.Join(err, rdb.Close())
	}
	s, err := redisstore.New(rdb, redisstore.Options{Prefix: "bench-proxy", OpTimeout: opTimeout})
	if err != nil {
		return nil, nil, errors.Join(err, rdb.Close())
	}
	return s, func() error { return errors.Join(s.Close(), rdb.Close()) }, nil
}

// origin returns the handler behind the cache. It forwards each request to the origin, with the
// request's own Host and query.
func (p proxyPlan) origin(stderr io.Writer) http.Handler {
	transport := &http.Transport{
		DisableCompression: true, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
	}
	reverse := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(p.Origin)
			// Even if it can't be parsed, because it is part of the key.
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			r.Out.Host = r.In.Host
		},
		Transport: transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			fmt.Fprintln(stderr, "bench: origin:", err)
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reverse.ServeHTTP(seldomFlushed{w}, r)
	})
}

// seldomFlushed flushes only event streams. If ReverseProxy doesn't know the length of a response,
// it flushes each part of it. A cache has to treat such a response as a stream that may never end.
type seldomFlushed struct{ http.ResponseWriter }

func (w seldomFlushed) FlushError() error {
	if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
		return http.ErrNotSupported
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap lets ReverseProxy take connections over. It finds FlushError first.
func (w seldomFlushed) Unwrap() http.ResponseWriter { return w.ResponseWriter }
