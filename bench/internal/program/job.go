package program

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"reflect"

	"github.com/cacheguard/cacheguard/bench/internal/wire"
)

// job is what a replica does when it is told to, and A what it answers.
type job[A any] interface {
	do(ctx context.Context, w *worker) (A, error)
}

// nothing is the answer of a job that is just done.
type nothing struct{}

// jobs are how each kind of job is done, by its type.
var jobs = map[reflect.Type]func(ctx context.Context, w *worker, j any) (any, error){}

// known makes a kind of job known to both ends. What it returns is for a variable.
func known[A any](j job[A]) struct{} {
	gob.Register(j)
	var answer A
	if _, none := any(answer).(nothing); !none {
		gob.Register(answer)
	}
	jobs[reflect.TypeOf(j)] = func(ctx context.Context, w *worker, j any) (any, error) {
		answer, err := j.(job[A]).do(ctx, w)
		if _, none := any(answer).(nothing); none {
			return nil, err
		}
		return answer, err
	}
	return struct{}{}
}

// ask has a replica do a job, and waits for its answer.
func ask[A any](ctx context.Context, r *replica, j job[A]) (answer A, err error) {
	got, err := r.Ask(ctx, j)
	if errors.Is(err, wire.ErrEnded) {
		err = fmt.Errorf("a replica ended: %w", err)
	}
	answer, _ = got.(A)
	return answer, err
}
