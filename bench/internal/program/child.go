package program

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// childEnv tells a test binary that it was started as a replica.
const childEnv = "CACHEGUARD_BENCH_REPLICA"

// child is a replica's process: this program once more, with orders and answers as JSON on its
// stdin and stdout.
type child struct {
	cmd *exec.Cmd
	in  io.Closer
	out *json.Encoder
	dec *json.Decoder
}

func startChild(ctx context.Context, args ...string) (*child, error) {
	return startChildAs(ctx, func(*exec.Cmd) {}, args...)
}

// startChildAs is startChild with a say in how it is started.
func startChildAs(ctx context.Context, as func(cmd *exec.Cmd), args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
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
	return &child{cmd: cmd, in: in, out: json.NewEncoder(in), dec: json.NewDecoder(bufio.NewReader(out))}, nil
}

func (c *child) order(order any) error { return c.out.Encode(order) }

// read reads the next answer into it.
func (c *child) read(answer any) error {
	if err := c.dec.Decode(answer); err != nil {
		return fmt.Errorf("a replica ended: %w", err)
	}
	return nil
}

// fleet is a run's replicas.
type fleet []*child

func startFleet(ctx context.Context, processes int, args ...string) (f fleet, err error) {
	for range processes {
		c, err := startChild(ctx, args...)
		if err != nil {
			return nil, errors.Join(err, f.stop())
		}
		f = append(f, c)
	}
	return f, nil
}

// stop ends the replicas by the end of their orders.
func (f fleet) stop() (err error) {
	for _, c := range f {
		_ = c.in.Close()
	}
	for _, c := range f {
		err = errors.Join(err, c.cmd.Wait())
	}
	return err
}
