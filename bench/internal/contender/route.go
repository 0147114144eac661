package contender

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// routes are contenders with an HTTP server in each replica. Their callers are clients over the
// loopback network. One is a plain handler, the other is the same handler behind the middleware.
var routes = []Contender{
	{Name: "http-none", What: "a chi route that loads", Open: openRoute(false)},
	{Name: "http", What: "the same route behind package middleware", Open: openRoute(true)},
}

// route is the server of one replica, and its clients.
type route struct {
	Rig
	server *http.Server
	client *http.Client
	url    string // the URL of the route, with a slash at its end
	store  *redisstore.Store
	pages  *middleware.Cache
}

// shopHost is the host in all requests, as behind a load balancer. With the replicas' own
// addresses, each replica would be a different site.
const shopHost = "shop.test"

func openRoute(guarded bool) func(context.Context, Rig) (Protection, error) {
	return func(ctx context.Context, r Rig) (Protection, error) {
		t := &route{Rig: r}
		if err := t.open(ctx, guarded); err != nil {
			return nil, errors.Join(err, t.Close())
		}
		return t, nil
	}
}

func (t *route) open(ctx context.Context, guarded bool) (err error) {
	mux := chi.NewRouter()
	if guarded {
		if t.store, err = OpenStore(t.Redis, ""); err != nil {
			return err
		}
		if t.pages, err = middleware.New(t.store,
			middleware.Options{Name: "bench", LeaseTTL: t.LockTTL, Logger: quiet}); err != nil {
			return err
		}
		if err := t.store.Warm(ctx); err != nil {
			return err
		}
		mux.Use(t.pages.Handler)
	}
	mux.Get("/value/{key}", t.serve)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	t.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = t.server.Serve(listener) }() // until Close
	t.url = "http://" + listener.Addr().String() + "/value/"
	t.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10_000}}
	return nil
}

// serve is the handler. Its responses, also those for a missing value, contain the time for which
// they are valid.
func (t *route) serve(w http.ResponseWriter, r *http.Request) {
	key, err := url.PathUnescape(chi.URLParam(r, "key"))
	if err != nil {
		http.Error(w, "no such key", http.StatusBadRequest)
		return
	}
	value, found, err := t.Load(r.Context(), key)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Cache-Control", fmt.Sprintf("s-maxage=%d", int(t.TTL.Seconds())))
	if !found {
		http.Error(w, "there is nothing", http.StatusNotFound)
		return
	}
	_, _ = io.WriteString(w, value) // an error means that the client has left
}

func (t *route) path(key string) string { return url.PathEscape(key) }

func (t *route) Get(ctx context.Context, key string) (string, bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url+t.path(key), nil)
	if err != nil {
		return "", false, err
	}
	req.Host = shopHost
	resp, err := t.client.Do(req)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return "", false, err
	case resp.StatusCode == http.StatusOK:
		return string(body), true, nil
	case resp.StatusCode == http.StatusNotFound:
		return "", false, nil
	}
	return "", false, fmt.Errorf("status %d: %.100s", resp.StatusCode, body)
}

func (t *route) Invalidate(ctx context.Context, key string) error {
	if t.pages == nil {
		return nil
	}
	return t.pages.Purge(ctx, "/value/"+t.path(key))
}

func (t *route) Close() error {
	var errs []error
	if t.server != nil {
		errs = append(errs, t.server.Close())
		t.client.CloseIdleConnections()
	}
	if t.pages != nil {
		errs = append(errs, t.pages.Close())
	}
	if t.store != nil {
		errs = append(errs, t.store.Close())
	}
	return errors.Join(errs...)
}
