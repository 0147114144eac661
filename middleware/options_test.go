package middleware_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// For each wrong option New returns an error that names the option. It returns all errors at once.
func TestWrongOptions(t *testing.T) {
	type options = middleware.Options
	all := options{}
	var words []string
	for word, set := range map[string]func(o *options){
		"Options.StaleWhileRevalidate is 1ns": func(o *options) { o.StaleWhileRevalidate = 1 },
		"Options.StaleIfError is ": func(o *options) {
			o.StaleIfError = 11 * 365 * 24 * time.Hour
		},
		"Options.DefaultTTL is 1ns":      func(o *options) { o.DefaultTTL = 1 },
		"Options.HitForMiss is -1s":      func(o *options) { o.HitForMiss = -time.Second },
		"Options.Heuristic is 1.5":       func(o *options) { o.Heuristic = 1.5 },
		"Options.MaxBody is -1":          func(o *options) { o.MaxBody = -1 },
		"Options.MaxBacklog is 5, below": func(o *options) { o.MaxBacklog = 5 },
		"Options.StrongReads and Options.LocalBytes exclude each other": func(o *options) {
			o.StrongReads, o.LocalBytes = true, 1
		},
		`Options.TrustForwarded has "X-Real-Ip"`: func(o *options) {
			o.TrustForwarded = []string{"X-Real-Ip"}
		},
		`Options.IgnoreCookies has "a b"`: func(o *options) {
			o.IgnoreCookies = []string{"a b"}
		},
		`Options.TargetedFields has "Cache-Control"`: func(o *options) {
			o.TargetedFields = []string{"Cache-Control"}
		},
		`Options.CacheStatus is "a b"`:                 func(o *options) { o.CacheStatus = "a b" },
		"cacheguard: Options.Name \"a{b\" has a brace": func(o *options) { o.Name = "a{b" },
		"cacheguard: Options.OnStoreDown is 7":         func(o *options) { o.OnStoreDown = 7 },
	} {
		words = append(words, word)
		set(&all)
		o := options{}
		set(&o)
		if cache, err := middleware.New(memstore.New(memstore.Options{}), o); cache != nil ||
			err == nil || !strings.Contains(err.Error(), word) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("New: %v; want one error: %s", err, word)
		}
	}
	_, err := middleware.New(nil, all)
	if err == nil {
		t.Fatal("no error")
	}
	for _, word := range append(words, "store is nil") {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("New says nothing of %s: %v", word, err)
		}
	}
	for _, o := range []options{
		{Limiter: cacheguard.NewLimiter(1, 1), StrongReads: true},
		{LocalBytes: 1, LocalTTL: time.Second},
	} {
		cache, err := middleware.New(memstore.New(memstore.Options{}), o)
		if err != nil {
			t.Fatal(err)
		}
		_ = cache.Close()
	}
}
