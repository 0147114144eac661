package desk

import (
	"context"
	"testing"
	"testing/synctest"
)

// A job is done by the goroutine that takes it; after Close none is taken, and who has waited
// learns of it.
func TestDesk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Open(t.Context())
		done, taken := false, make(chan bool, 1)
		go func() { taken <- d.Do(func() { done = true }) }()
		job := <-d.jobs
		if !<-taken || done {
			t.Error("Do returned before the job was taken, or did it itself")
		}
		if job(); !done {
			t.Error("this is another job")
		}
		go func() { taken <- d.Do(func() { t.Error("done after Close") }) }()
		synctest.Wait()
		d.Close()
		if <-taken || d.Do(func() { t.Error("done after Close") }) {
			t.Error("a closed desk took a job")
		}
	})
}

func TestContext(t *testing.T) {
	d := Open(t.Context())
	ctx := With(t.Context(), d)
	if From(ctx) != d || d.client != t.Context() || From(With(ctx, nil)) != nil ||
		From(context.Background()) != nil {
		t.Error("the context has another desk")
	}
	if !MayRefresh(context.Background(), 1, true) || !MayRefresh(ctx, 1, true) {
		t.Error("a caller that says nothing may have no refresh")
	}
	d.Caller = only{1}
	if !MayRefresh(ctx, 1, false) || MayRefresh(ctx, 2, false) || MayRefresh(ctx, 1, true) {
		t.Error("a caller's word doesn't count")
	}
}

// only is a caller that may refresh one value, and takes one word.
type only struct{ value any }

func (o only) Refreshes(value any, behind bool) bool { return value == o.value && !behind }
func (o only) Hears(word any) bool                   { return word == o.value }
func (o only) Parts(value any) bool                  { return value == o.value }

// What a load says reaches its crowd; without one nobody is told.
func TestCrowd(t *testing.T) {
	LoadOf(t.Context()).Announce("nobody")
	LoadOf(t.Context()).Made()
	var c crowd
	ctx, _ := WithLoad(t.Context(), &c, nil)
	LoadOf(ctx).Announce("all")
	LoadOf(ctx).Made()
	if len(c.heard) != 1 || c.heard[0] != "all" || c.made != 1 {
		t.Errorf("the crowd has heard %v", c)
	}
}

type crowd struct {
	heard []any
	made  int
}

func (c *crowd) Announce(word any) { c.heard = append(c.heard, word) }
func (c *crowd) Made()             { c.made++ }

// The slot of a load is given back once: when the load ends, or later by the job that has kept it.
func TestKeep(t *testing.T) {
	given := 0
	load := func() *Load {
		given = 0
		ctx, _ := WithLoad(t.Context(), nil, func() { given++ })
		return LoadOf(ctx)
	}
	l := load()
	if l.End(); given != 1 || l.Keep() != nil || l.Keeps() {
		t.Errorf("a load that nobody keeps gives its slot back %d times", given)
	}
	l = load()
	release := l.Keep()
	if l.Keep() != nil {
		t.Error("kept twice")
	}
	if l.End(); given != 0 || !l.Keeps() {
		t.Errorf("given back %d times while it is kept", given)
	}
	release()
	if release(); given != 1 || l.Keeps() {
		t.Errorf("given back %d times", given)
	}
	l = load()
	l.Keep()() // before the load ends
	if l.End(); given != 1 {
		t.Errorf("given back %d times", given)
	}
	if LoadOf(t.Context()).Keep() != nil || LoadOf(t.Context()).Keeps() {
		t.Error("what is no load has a slot")
	}
	if _, without := WithLoad(t.Context(), nil, nil); without.Keep() != nil {
		t.Error("a load without a slot has one to be kept")
	}
}
