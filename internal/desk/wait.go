package desk

import (
	"cmp"
	"context"

	"github.com/cacheguard/cacheguard/internal/flight"
)

// Work waits for the flight of the load that the desk's caller has begun, and does the job that the
// load may bring.
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

// Hear waits for the flight of somebody else's load, for a Caller who may get what it came for
// before that has landed. Until it has all of that it is a member, so that the work goes on for it.
func Hear[T any](ctx context.Context, d *Desk, f *flight.Flight[T]) (*T, error) {
	for {
		word, next := f.Word()
		if word != nil {
			if enough, err := hears(f, d, word); enough || err != nil {
				return nil, cmp.Or(err, context.Canceled)
			}
		}
		select {
		case <-next:
			continue
		case <-f.Done():
		case <-ctx.Done():
		}
		return f.Result(ctx)
	}
}

// hears has a caller hear a word, and reports whether it has by that what it came for: then it has
// left the flight, as it has with an error.
func hears[T any](f *flight.Flight[T], d *Desk, word any) (enough bool, err error) {
	stop := context.AfterFunc(d.client, func() { f.Leave() })
	over := true // also by a panic
	defer func() {
		if over && stop() {
			f.Leave()
		}
	}()
	if d.Caller.Hears(word) {
		return true, nil
	}
	if over = false; !stop() {
		return false, d.client.Err()
	}
	return false, nil
}
