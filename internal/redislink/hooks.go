package redislink

import (
	"context"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

// View is a client on the same connections whose calls end at their context's deadline and after the timeout. go-redis doesn't give
// it the client's hooks, which may be the user's traces and metrics. Those that the client has by now see its commands all the same:
// they go through the client, whose last hook, the tail, hands them back to the view.
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
		return h.client.Process(&handed{Context: ctx, one: next}, cmd)
	}
}

func (h head) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		pipe := h.client.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd) // notes it
		}
		_, err := pipe.Exec(&handed{Context: ctx, many: next})
		return err
	}
}

// handed is the context of what a client is handed by a view, with what the view does with it.
type handed struct {
	context.Context
	one  redis.ProcessHook
	many redis.ProcessPipelineHook
}

type handedKey struct{}

func (c *handed) Value(key any) any {
	if key == (handedKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// tail is the last hook of a client that has views.
type tail struct{}

func (tail) DialHook(next redis.DialHook) redis.DialHook { return next }

func (tail) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if by, ok := ctx.Value(handedKey{}).(*handed); ok && by.one != nil {
			return by.one(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

func (tail) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if by, ok := ctx.Value(handedKey{}).(*handed); ok && by.many != nil {
			return by.many(ctx, cmds)
		}
		return next(ctx, cmds)
	}
}

// tailed are the clients with a tail, as long as they live: there may be many views of one.
var tailed sync.Map // of *sync.Once by weak.Pointer[redis.Client]

func endWithTail(c *redis.Client) {
	key := weak.Make(c)
	once, had := tailed.LoadOrStore(key, new(sync.Once))
	if !had {
		runtime.AddCleanup(c, func(key weak.Pointer[redis.Client]) { tailed.Delete(key) }, key)
	}
	once.(*sync.Once).Do(func() { c.AddHook(tail{}) })
}
