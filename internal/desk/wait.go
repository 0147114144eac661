package desk

import (
	"cmp"
	"context"

	"github.com/cacheguard/cacheguard/internal/flight"
)

// Work waits for the flight of the load that the desk's caller has begun. If the load brings a job,
// Work runs the job.
func Work[T any](ctx context.Context, d *Desk, f *flight.Flight[T]) (*T, error) {
	select {
	case job := <-d.jobs:
		// The job must not be interrupted, but the caller can leave the flight.
		stop := context.AfterFunc(d.client, func() { f.Leave() })
		panics := true
		defer func() {
			switch {
			case !panics || !stop():
			case d.left:
				f.Leave()
			default:
				// The panic goes on when the load's other callers know of the failure, or when the
				// client has left.
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

// Hear waits for the flight of another caller's load. The desk's Caller may get what it needs
// before the flight has landed. Until the Caller has all that it needs, it is a member of the
// flight, so that the work goes on for it.
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

// hears passes a word to the caller, and reports whether the caller now has what it needs. If it
// reports true or returns an error, the caller has left the flight.
func hears[T any](f *flight.Flight[T], d *Desk, word any) (enough bool, err error) {
	stop := context.AfterFunc(d.client, func() { f.Leave() })
	over := true // stays true if the caller panics
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
