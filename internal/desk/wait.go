package desk

import (
	"context"

	"github.com/cacheguard/cacheguard/internal/flight"
)

// Work waits for the flight of the load that the desk's caller has begun, and does the job that the load may bring.
func Work[T any](ctx context.Context, d *Desk, f *flight.Flight[T]) (*T, error) {
	select {
	case job := <-d.jobs:
		// The job can't be left half done, but who asked for it can go.
		stop := context.AfterFunc(d.client, func() { f.Leave() })
		panics := true
		defer func() {
			switch {
			case !panics || !stop():
			case d.left:
				f.Leave()
			default: // who waits elsewhere is told of the failed load first
				_, _ = f.Wait(d.client)
			}
		}()
		job()
		panics = false
		switch {
		case !stop():
			return nil, d.client.Err()
		case d.left:
			f.Leave()
			return nil, context.Canceled
		}
		return f.Result(d.client)
	case <-f.Done():
	case <-ctx.Done():
	}
	return f.Result(ctx)
}

// Hear waits for the flight of somebody else's load, for a Caller who may get what it came for before that has landed. Until it
// has all of that it is a member, so that the work goes on for it.
func Hear[T any](ctx context.Context, d *Desk, f *flight.Flight[T]) (*T, error) {
	select {
	case <-f.Announced():
	case <-f.Done():
		return f.Result(ctx)
	case <-ctx.Done():
		return f.Result(ctx)
	}
	stop := context.AfterFunc(d.client, func() { f.Leave() })
	over := true // also by a panic
	defer func() {
		if over && stop() {
			f.Leave()
		}
	}()
	if d.Caller.Hears(f.Word()) {
		return nil, context.Canceled
	}
	if over = false; !stop() {
		return nil, d.client.Err()
	}
	return f.Result(ctx)
}
