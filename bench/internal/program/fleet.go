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

// replica is a process of a fleet as its conductor sees it: this program once more, which is told
// on its stdin what to do and answers on its stdout.
type replica struct {
	*wire.Client
	cmd    *exec.Cmd
	in     io.Closer
	killed atomic.Bool
}

// startReplica starts one, with a say in how.
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

// kill ends it as the end of its machine would.
func (r *replica) kill() {
	r.killed.Store(true)
	_ = r.cmd.Process.Kill()
}

// wait waits for its end, when nothing reads from it any more.
func (r *replica) wait() error {
	<-r.Over()
	return r.cmd.Wait()
}

// fleet is a run's replicas.
type fleet []*replica

// startFleet starts replicas, and has each do its first job. If one can't, there are none.
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

// askAll has each replica do a job of its own at the same time.
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

// kill ends the replicas at once: what is stuck in one doesn't end by itself.
func (f fleet) kill() {
	for _, r := range f {
		r.kill()
	}
	for _, r := range f {
		_ = r.wait() // killed: the error says so
	}
}

// stop ends the replicas by the end of their jobs.
func (f fleet) stop() (err error) {
	for _, r := range f {
		_ = r.in.Close()
	}
	for _, r := range f {
		err = errors.Join(err, r.wait())
	}
	return err
}
