package cacheguard

import (
	"context"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// LoadTracer is what an Observer implements, too, that follows loads. StartLoad is called right
// before the user's load runs, or the write of an Update, on the same goroutine. ctx has the values
// of the caller that started the load; the load gets loadCtx, which has to be ctx or made of it, or
// nil for ctx itself. end is called once the load is over, with its error, or with notFound if it
// found that there is nothing; nil: it is not called.
//
// note, of at most 255 bytes, goes where the result goes: into the store and to all who wait for
// the load, who find it as Event.Note. It is to lead to the load, as the id of a trace does. A
// longer one is left out. The note must not be changed afterwards.
//
// A refresh in the background is begun by a caller, too, who may be gone when it runs.
//
// A panic in StartLoad or end is dropped; runtime.Goexit in them ends the load.
type LoadTracer interface {
	StartLoad(ctx context.Context, cache, key string) (loadCtx context.Context, note []byte, end func(err error, notFound bool))
}

// noteOf is what the tracer has noted at a load, also at one that doesn't end in time.
func noteOf(noted *atomic.Pointer[[]byte]) []byte {
	if note := noted.Load(); note != nil {
		return *note
	}
	return nil
}

// trace has the tracer begin to follow a load, and returns the load's context and what ends the
// following, or nil.
func (c *Cache[V]) trace(ctx context.Context, key string, noted *atomic.Pointer[[]byte]) (loadCtx context.Context, end func(error, bool)) {
	if c.tracer == nil {
		return ctx, nil
	}
	loadCtx = ctx
	defer func() { _ = recover() }()
	traced, note, end := c.tracer.StartLoad(ctx, c.opts.Name, key)
	if madeOf(traced, ctx) {
		loadCtx = traced
	}
	if noteFits(note) {
		noted.Store(&note)
	}
	return loadCtx, end
}

// safely does something of the user's that must not be able to kill a load.
func safely(do func()) {
	defer func() { _ = recover() }()
	do()
}

// madeOf reports whether a tracer's context looks as if it were made of ctx. One that isn't would
// neither end with it nor say which load it belongs to.
func madeOf(traced, ctx context.Context) bool {
	return traced != nil && chainOf(traced) == chainOf(ctx) && (traced.Done() != nil || ctx.Done() == nil)
}

func noteFits(note []byte) bool { return len(note) > 0 && len(note) <= frame.MaxNote }
