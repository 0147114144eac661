package cacheguard

import (
	"context"
	"slices"
)

// Observers returns an Observer that passes each event to all of these, in order. It also
// implements the optional interfaces, for the observers that have them. If there are several
// tracers, each tracer gets the context that the tracer before it returned, and the first note that
// is not empty is used. Hits of the process-local tier are reported unless LocalHitsUntold of every
// observer returns true (see [HitsUntold]). Observers ignores a nil Observer.
func Observers(all ...Observer) Observer {
	all = slices.DeleteFunc(slices.Clone(all), func(o Observer) bool { return o == nil })
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	if slices.ContainsFunc(all, func(o Observer) bool { _, ok := o.(Watcher); return ok }) {
		return watchers{all}
	}
	return observers(all)
}

type observers []Observer

func (all observers) Observe(ctx context.Context, e Event) {
	for _, o := range all {
		safely(func() { o.Observe(ctx, e) }) // if one panics, the others still get the event
	}
}

// StartLoad starts all tracers. See [LoadTracer].
func (all observers) StartLoad(
	ctx context.Context, cache, key string,
) (context.Context, []byte, func(error, bool)) {
	var note []byte
	var ends []func(error, bool)
	for _, o := range all {
		tracer, ok := o.(LoadTracer)
		if !ok {
			continue
		}
		next, its, end := startSafely(ctx, tracer, cache, key)
		if madeOf(next, ctx) {
			ctx = next
		}
		if note == nil && noteFits(its) {
			note = its
		}
		if end != nil {
			ends = append(ends, end)
		}
	}
	if ends == nil {
		return ctx, note, nil
	}
	return ctx, note, func(err error, notFound bool) {
		for _, end := range slices.Backward(ends) {
			safely(func() { end(err, notFound) })
		}
	}
}

func startSafely(
	ctx context.Context, tracer LoadTracer, cache, key string,
) (next context.Context, note []byte, end func(error, bool)) {
	defer func() { _ = recover() }()
	return tracer.StartLoad(ctx, cache, key)
}

// Attach calls Attach of all observers that have it. See [Attacher].
func (all observers) Attach(cache string, stats func() Stats) (detach func()) {
	return attachEach(all, func(a Attacher) func() { return a.Attach(cache, stats) })
}

// watchers are observers of which at least one is a [Watcher]. It is a separate type with the
// method Watch, because a watched cache does more work. Observers without a Watcher must not cause
// this work.
type watchers struct{ observers }

// Watch calls Watch of all observers that have it. See [Watcher].
func (all watchers) Watch(v View) (detach func()) {
	return attachEach(all.observers, func(w Watcher) func() { return w.Watch(v) })
}

// attachEach calls attach for all observers that implement the interface I. detach calls what
// attach returned, in reverse order.
func attachEach[I any](all observers, attach func(I) (detach func())) (detach func()) {
	var detaches []func()
	for _, o := range all {
		if i, ok := o.(I); ok {
			if detach := attach(i); detach != nil {
				detaches = append(detaches, detach)
			}
		}
	}
	return func() {
		for _, detach := range slices.Backward(detaches) {
			detach()
		}
	}
}

// LocalHitsUntold reports whether no observer needs an event for hits of the process-local tier.
// See [HitsUntold].
func (all observers) LocalHitsUntold() bool {
	return !slices.ContainsFunc(all, func(o Observer) bool {
		h, ok := o.(HitsUntold)
		return !ok || !h.LocalHitsUntold()
	})
}
