package cacheguard

import (
	"context"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// LoadTracer is implemented by an [Observer] that traces loads. The cache calls StartLoad right
// before the user's load, or before the write of an Update, on the same goroutine. ctx has the
// values of the caller that started the load. The load gets loadCtx, which must be ctx or derived
// from ctx; nil means ctx. If end is not nil, the cache calls it when the load has ended, with the
// load's error. notFound is true if the load found that the value does not exist.
//
// For a load of several keys, key has the first key and the number of further keys, err is the
// error of the first key that failed, and notFound is true only if none of the keys exists.
//
// note is stored and sent together with the load's result, and the events of all callers that
// waited for the load have it in Event.Note. The note should identify the load, for instance by the
// id of a trace. A note of more than 255 bytes is ignored. The note must not be changed after
// StartLoad has returned.
//
// For a refresh in the background, ctx has the values of the call that began the refresh. That call
// may have returned before the load runs.
//
// A panic in StartLoad or end is dropped; runtime.Goexit in them ends the load.
type LoadTracer interface {
	StartLoad(ctx context.Context,
		cache, key string) (loadCtx context.Context, note []byte,
		end func(err error, notFound bool))
}

// noteOf returns the tracer's note of a load. It reads the note atomically, because StartLoad may
// still run on another goroutine when the load has timed out.
func noteOf(noted *atomic.Pointer[[]byte]) []byte {
	if note := noted.Load(); note != nil {
		return *note
	}
	return nil
}

// trace starts the tracer for a load. It returns the load's context and the function that ends the
// trace, or nil.
func (c *Cache[V]) trace(
	ctx context.Context, key string, noted *atomic.Pointer[[]byte],
) (loadCtx context.Context, end func(error, bool)) {
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

// safely calls a function of the user and drops its panic, which must not end a load.
func safely(do func()) {
	defer func() { _ = recover() }()
	do()
}

// madeOf reports whether a tracer's context seems to be derived from ctx. Another context is not
// used, because it would not end with ctx, and cache calls inside the load would not know to which
// load they belong.
func madeOf(traced, ctx context.Context) bool {
	return traced != nil && chainOf(traced) == chainOf(ctx) &&
		(traced.Done() != nil || ctx.Done() == nil)
}

func noteFits(note []byte) bool { return len(note) > 0 && len(note) <= frame.MaxNote }
