package coretest_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// TestMarkStaleTags ages what has the soft tag, wherever it is, and also what is loaded meanwhile.
func TestMarkStaleTags(t *testing.T) {
	soft := func(v string, ttl time.Duration) cacheguard.EntryFunc[string] {
		return func(
			_ context.Context, prev cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{
				Value: v, TTL: ttl, Tags: []string{"hard"}, SoftTags: []string{"hard", "soft"},
			}, nil
		}
	}
	fleets(t, cacheguard.Options[string]{StaleWhileRevalidate: time.Minute}, func(
		t *testing.T, a, b *cacheguard.Cache[string],
	) {
		both := []*cacheguard.Cache[string]{a, b}
		marks := func() {
			t.Helper()
			if err := a.MarkStaleTags(t.Context(), "unknown", "soft"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		gets(t, a, "k", soft("one", time.Hour), "one", cacheguard.StatusLoaded)
		for _, c := range both {
			gets(t, c, "k", soft("unexpected", 0), "one", cacheguard.StatusHit)
		}
		<-time.After(time.Second)
		marks()
		<-time.After(time.Second)
		for _, c := range both {
			if r, err := c.Peek(t.Context(), "k"); r.Value != "one" ||
				r.Status != cacheguard.StatusStale || r.FreshFor != -time.Second || err != nil {
				t.Errorf("a marked value is %+v, %v", r, err)
			}
		}
		gets(t, b, "k", soft("two", time.Hour), "one", cacheguard.StatusStale)
		synctest.Wait() // for the refresh
		for _, c := range both {
			gets(t, c, "k", soft("unexpected", 0), "two", cacheguard.StatusHit)
			got, err := c.GetMany(t.Context(), []string{"k"}, func(
				context.Context, []string,
			) (map[string]string, error) {
				return nil, errOrigin
			})
			if got["k"] != "two" || err != nil {
				t.Errorf("GetMany: %v, %v", got, err)
			}
		}
		marks()
		<-time.After(2 * time.Minute)
		gets(t, a, "k", soft("three", time.Hour), "three", cacheguard.StatusLoaded)
		if err := b.InvalidateTags(t.Context(), "hard"); err != nil {
			t.Fatal(err)
		}
		if r, err := a.Peek(t.Context(), "k"); r.Status != cacheguard.StatusMiss || err != nil {
			t.Errorf("an invalidated value is %+v, %v", r, err)
		}

		o := newScriptedOrigin[entry](t)
		call := gettingEntry(t.Context(), t, b, "k", o.load)
		load := o.next()
		marks()
		load.gives(entry{Value: "four", TTL: time.Hour, SoftTags: []string{"soft"}})
		if r, err := call.now(); r.Value != "four" || err != nil {
			t.Errorf("the call got %+v, %v", r, err)
		}
		if r, err := a.Peek(t.Context(), "k"); r.Value != "four" ||
			r.Status != cacheguard.StatusStale || err != nil {
			t.Errorf("what was loaded meanwhile is %+v, %v", r, err)
		}
	})
}

// TestMarkStaleTagsManyAtOnce: a batch sees marks like single reads do.
func TestMarkStaleTagsManyAtOnce(t *testing.T) {
	fleets(t, cacheguard.Options[string]{StaleIfError: time.Minute}, func(
		t *testing.T, a, b *cacheguard.Cache[string],
	) {
		for _, key := range []string{"1", "2"} {
			_, err := a.GetEntry(t.Context(), key, func(
				context.Context, cacheguard.Result[string],
			) (cacheguard.Entry[string], error) {
				return cacheguard.Entry[string]{Value: "v" + key, SoftTags: []string{"of " + key}},
					nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(time.Second)
		if err := b.MarkStaleTags(t.Context(), "of 1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, c := range []*cacheguard.Cache[string]{a, b} {
			var asked []string
			got, err := c.GetMany(t.Context(), []string{"1", "2"}, func(
				_ context.Context, missing []string,
			) (map[string]string, error) {
				asked = append(asked, missing...)
				return nil, errOrigin
			})
			if got["1"] != "v1" || got["2"] != "v2" || err != nil {
				t.Errorf("got %v, %v", got, err)
			}
			if c == a && strings.Join(asked, ",") != "1" {
				t.Errorf("the load was asked for %v", asked)
			}
		}
	})
}

// TestSoftTagsThatCantBe are errors that say so.
func TestSoftTagsThatCantBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		for what, e := range map[string]entry{
			"zero byte": {Tags: []string{"\x00a"}},
			"empty":     {SoftTags: []string{""}},
			"255":       {SoftTags: []string{strings.Repeat("a", 255)}},
			"65 tags": {
				Tags: make([]string, 33), SoftTags: strings.Fields(strings.Repeat("a ", 32)),
			},
		} {
			for i := range e.Tags {
				if e.Tags[i] == "" {
					e.Tags[i] = "a"
				}
			}
			_, err := c.GetEntry(t.Context(), what, entries(returning(e)))
			if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(what, "255")) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, tag := range []string{"", "\x00a", strings.Repeat("a", 255)} {
			if err := c.MarkStaleTags(t.Context(), tag); err == nil {
				t.Errorf("MarkStaleTags took %.10q", tag)
			}
		}
		if err := c.InvalidateTags(t.Context(), "\x00a"); err == nil {
			t.Error("InvalidateTags took a soft tag")
		}
		if err := c.MarkStaleTags(t.Context()); err != nil {
			t.Errorf("no tags: %v", err)
		}
	})
}
