package stage_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// childEnv makes this process a replica with one request. Its value is the plan of the process.
const childEnv = "CACHEGUARD_STAGE_CHILD"

// childPlan is the plan of a process: it asks once, and stops at a point until it is told to go on.
type childPlan struct {
	Stage, Addr, Key string
	At               stage.Point
	LockTTL          time.Duration
}

func childOrTests(m *testing.M) {
	zktest.SuppressRace()
	if text := os.Getenv(childEnv); text != "" {
		var plan childPlan
		if err := json.Unmarshal([]byte(text), &plan); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		plan.run(os.Stdin, os.Stdout)
		os.Exit(0)
	}
	os.Exit(redistest.Main(zktest.Wrap(m)))
}

func (plan childPlan) run(stdin io.Reader, stdout io.Writer) {
	in := bufio.NewReader(stdin)
	at := func(_ context.Context, p stage.Point) error {
		if p == plan.At {
			fmt.Fprintln(stdout, "there")
			_, _ = in.ReadString('\n')
		}
		return nil
	}
	rdb := redis.NewClient(&redis.Options{Addr: plan.Addr, ContextTimeoutEnabled: true})
	p, err := stage.Open(plan.Stage, &stage.Replica{
		Redis: rdb, At: at, Now: time.Now, LockTTL: plan.LockTTL, CacheTTL: cacheTTL, Spin: spin,
		Load: func(ctx context.Context, _ string) (string, error) {
			return "version 1", at(ctx, querying)
		},
	})
	if err != nil {
		fmt.Fprintln(stdout, err)
		return
	}
	value, err := p.Get(context.Background(), plan.Key)
	fmt.Fprintln(stdout, "answer:", value, err)
}

// process is a replica in a separate process.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  *bufio.Reader
}

// start starts a process, and returns when the process has come to its point.
func (l *lab) start(at stage.Point, lockTTL time.Duration) *process {
	l.t.Helper()
	program, err := os.Executable()
	must(l.t, err)
	text, err := json.Marshal(childPlan{l.stage, l.rdb.Options().Addr, l.key, at, lockTTL})
	must(l.t, err)
	p := &process{t: l.t, cmd: exec.Command(program)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text),
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=50")
	p.cmd.Stderr = os.Stderr
	p.stdin, err = p.cmd.StdinPipe()
	must(l.t, err)
	stdout, err := p.cmd.StdoutPipe()
	must(l.t, err)
	p.said = bufio.NewReader(stdout)
	must(l.t, p.cmd.Start())
	l.t.Cleanup(p.kill)
	p.says("there\n")
	return p
}

// says waits for a line. If the process stays silent, it is ended at the end of the test.
func (p *process) says(want string) {
	p.t.Helper()
	silent := time.AfterFunc(2*patience, func() { _ = p.cmd.Process.Kill() })
	defer silent.Stop()
	if line, err := p.said.ReadString('\n'); line != want {
		p.t.Fatalf("the process says %q, %v; want %q", line, err, want)
	}
}

// kill ends the process like kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
