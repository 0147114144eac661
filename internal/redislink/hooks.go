package redislink

import (
	"context"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

// View returns a client that uses the connections of c. Its calls end at their context's deadline,
// and at the latest after the timeout. go-redis doesn't give it the client's hooks, which may be
// the user's traces and metrics. But hooks that the client has when the view is made still see the
// view's commands. The commands go through the client, and the client's last hook, the tail, passes
// them back to the view.
func View(c *redis.Client, timeout time.Duration) *redis.Client {
	view := c.WithTimeout(timeout)
	view.Options().ContextTimeoutEnabled = true
	view.AddHook(head{c})
	endWithTail(c)
	return view
}

// head is the hook of a view.
type head struct{ client *redis.Client }

func (head) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h head) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		to, by := carry(ctx)
		by.one = next
		return h.client.Process(to, cmd)
	}
}

func (h head) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		pipe := h.client.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd) // records it in the pipeline
		}
		to, by := carry(ctx)
		by.many = next
		_, err := pipe.Exec(to)
		return err
	}
}

// Handed has the function with which the tail hands a command back to the view. It is a part of the
// command's context.
type Handed struct {
	one  redis.ProcessHook
	many redis.ProcessPipelineHook
}

// Value returns the value of a context that has this part.
func (h *Handed) Value(of context.Context, key any) any {
	if key == (handedKey{}) {
		return h
	}
	return of.Value(key)
}

type handedKey struct{}

// Carrier is the context of a single command that already contains a Handed, which saves an
// allocation. Its Value method must use Handed.Value.
type Carrier interface{ Carries() *Handed }

// carrying is a context with this part, for commands without a Carrier.
type carrying struct {
	context.Context
	handed Handed
}

func (c *carrying) Value(key any) any { return c.handed.Value(c.Context, key) }

func carry(ctx context.Context) (context.Context, *Handed) {
	if c, ok := ctx.(Carrier); ok {
		return ctx, c.Carries()
	}
	c := &carrying{Context: ctx}
	return c, &c.handed
}

// tail is the last hook of a client that has views.
type tail struct{}

func (tail) DialHook(next redis.DialHook) redis.DialHook { return next }

func (tail) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if by, ok := ctx.Value(handedKey{}).(*Handed); ok && by.one != nil {
			return by.one(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

func (tail) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if by, ok := ctx.Value(handedKey{}).(*Handed); ok && by.many != nil {
			return by.many(ctx, cmds)
		}
		return next(ctx, cmds)
	}
}

// tailed has the clients with a tail, for as long as they live, because one client can have many
// views.
var tailed sync.Map // of *sync.Once by weak.Pointer[redis.Client]

func endWithTail(c *redis.Client) {
	key := weak.Make(c)
	once, had := tailed.LoadOrStore(key, new(sync.Once))
	if !had {
		runtime.AddCleanup(c, func(key weak.Pointer[redis.Client]) { tailed.Delete(key) }, key)
	}
	once.(*sync.Once).Do(func() { c.AddHook(tail{}) })
}
