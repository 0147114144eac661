package program

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/bench/internal/wire"
)

// childEnv tells a test binary that it was started as a replica.
const childEnv = "CACHEGUARD_BENCH_REPLICA"

// replica is the conductor's handle of one process of a fleet. The process is a second run of this
// program. It gets its jobs on its stdin and answers on its stdout.
type replica struct {
	*wire.Client
	cmd    *exec.Cmd
	in     io.Closer
	killed atomic.Bool
}

// startReplica starts a replica. as can change its command before the start.
func startReplica(ctx context.Context, as func(cmd *exec.Cmd)) (*replica, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, replicaCommand)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	as(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &replica{Client: wire.NewClient(out, in), cmd: cmd, in: in}, nil
}

// kill ends the replica as if its machine had failed.
func (r *replica) kill() {
	r.killed.Store(true)
	_ = r.cmd.Process.Kill()
}

// wait waits for the replica's end. Call it when nothing reads from the replica any more.
func (r *replica) wait() error {
	<-r.Over()
	return r.cmd.Wait()
}

// fleet are the replicas of a run.
type fleet []*replica

// startFleet starts replicas, and gives each its first job. If one of them fails, startFleet ends
// all of them.
func startFleet(ctx context.Context, n int, first func(i int) job[nothing]) (f fleet, err error) {
	for range n {
		r, err := startReplica(ctx, func(*exec.Cmd) {})
		if err != nil {
			f.kill()
			return nil, err
		}
		f = append(f, r)
	}
	if _, err := askAll(ctx, f, first); err != nil {
		f.kill()
		return nil, err
	}
	return f, nil
}

// askAll gives each replica its own job, all at the same time.
func askAll[A any](ctx context.Context, f fleet, j func(i int) job[A]) ([]A, error) {
	answers, errs := make([]A, len(f)), make(chan error, len(f))
	for i, r := range f {
		go func() {
			var err error
			answers[i], err = ask(ctx, r, j(i))
			errs <- err
		}()
	}
	var err error
	for range f {
		err = errors.Join(err, <-errs)
	}
	return answers, err
}

// kill ends the replicas at once, because a stuck replica doesn't end by itself.
func (f fleet) kill() {
	for _, r := range f {
		r.kill()
	}
	for _, r := range f {
		_ = r.wait() // the error says that the replica was killed
	}
}

// stop ends the replicas by closing their input.
func (f fleet) stop() (err error) {
	for _, r := range f {
		_ = r.in.Close()
	}
	for _, r := range f {
		err = errors.Join(err, r.wait())
	}
	return err
}
