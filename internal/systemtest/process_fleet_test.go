//go:build unix

package systemtest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// processFleet has processes that share one cache in one redis-server, and the test that controls
// them.
type processFleet struct {
	t        *testing.T
	rdb      *redis.Client // the test's own
	replicas []*replicaProcess
	orders   int
	failures []string // of the trial
	crashed  bool     // a replica ended as it should not

	mu      sync.Mutex // guards the fields below
	reports []replicaReport
	more    chan struct{} // closed when there are more reports
}

// replicaProcess is one process of a fleet: this test binary, started once more.
type replicaProcess struct {
	fleet   *processFleet
	index   int
	cmd     *exec.Cmd
	stdin   io.Closer
	in      *json.Encoder
	stderr  bytes.Buffer  // to be read when gone is closed
	gone    chan struct{} // closed when the process has ended
	killed  bool          // by the test
	ending  bool          // by order of the test
	stopped time.Time     // since when the test has stopped it, be it for a while; zero: never
}

// start starts n replicas and returns when all are warm.
func (f *processFleet) start(n int, config replicaConfig) {
	for i := range n {
		r, err := f.startOne(i, config)
		if err != nil {
			f.Fatalf("replica %d doesn't start: %v", i, err)
		}
		f.replicas = append(f.replicas, r)
	}
	f.await("replicas that are ready", n, func(r replicaReport) bool {
		return r.Kind == reportReady
	})
}

func (f *processFleet) startOne(index int, config replicaConfig) (*replicaProcess, error) {
	c, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &replicaProcess{
		fleet: f, index: index, cmd: exec.Command(program), gone: make(chan struct{}),
	}
	r.cmd.Env = append(os.Environ(), replicaEnv+"="+string(c),
		fmt.Sprintf("GOMAXPROCS=%d", runtime.GOMAXPROCS(0)),
		// The race detector has each process sleep for a second at its end.
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=50")
	r.cmd.Stderr = &r.stderr
	// Should the test process die, its replicas read the end of their input and end, too. One that
	// is stopped can't read: but in a process group of its own it is orphaned then, and the kernel
	// hangs it up.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := r.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	r.stdin, r.in = stdin, json.NewEncoder(stdin)
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	go r.listen(stdout)
	return r, nil
}

// listen keeps the replica's reports until it is gone.
func (r *replicaProcess) listen(stdout io.Reader) {
	defer close(r.gone)
	in := json.NewDecoder(stdout)
	for {
		var rep replicaReport
		if err := in.Decode(&rep); err != nil {
			// A line that a kill has cut off, or a replica that talks nonsense.
			if !errors.Is(err, io.EOF) {
				_ = r.cmd.Process.Kill()
			}
			_ = r.cmd.Wait()
			r.fleet.add(replicaReport{
				Kind: reportGone, At: time.Now(), Replica: r.index,
				What: r.cmd.ProcessState.String(), Err: err.Error(),
			})
			return
		}
		rep.Replica = r.index
		r.fleet.add(rep)
	}
}

func (f *processFleet) add(rep replicaReport) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports = append(f.reports, rep)
	close(f.more)
	f.more = make(chan struct{})
}

// await returns the reports that match as soon as there are n of them.
func (f *processFleet) await(
	what string, n int, match func(replicaReport) bool,
) (found []replicaReport) {
	timeout := time.NewTimer(replicaPatience)
	defer timeout.Stop()
	for next := 0; ; {
		f.mu.Lock()
		for ; next < len(f.reports); next++ {
			rep := f.reports[next]
			if match(rep) {
				found = append(found, rep)
			}
			if rep.Kind == reportGone && !f.replicas[rep.Replica].killed &&
				!f.replicas[rep.Replica].ending {
				f.mu.Unlock()
				f.Fatalf("waiting for %s: replica %d has ended by itself: %s, %s", what,
					rep.Replica, rep.What, rep.Err)
			}
		}
		more := f.more
		f.mu.Unlock()
		if len(found) >= n {
			return found
		}
		select {
		case <-more:
		case <-timeout.C:
			f.Fatalf("waiting for %s: %d of %d after %v", what, len(found), n, replicaPatience)
		}
	}
}

// all returns the reports so far that match.
func (f *processFleet) all(match func(replicaReport) bool) (found []replicaReport) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, rep := range f.reports {
		if match(rep) {
			found = append(found, rep)
		}
	}
	return found
}

// settle returns when every report of what has happened so far is there.
func (f *processFleet) settle() {
	var ids []int
	for _, r := range f.replicas {
		if !r.ending && !r.ended() {
			ids = append(ids, r.do(replicaOrder{Do: orderNothing}))
		}
	}
	f.carriedOut(ids...)
}

// end has all replicas end and looks at how they do.
func (f *processFleet) end() {
	for _, r := range f.replicas {
		if !r.ended() {
			_ = r.cmd.Process.Signal(syscall.SIGCONT)
			r.finish()
		}
	}
	for _, r := range f.replicas {
		select {
		case <-r.gone:
		case <-time.After(replicaPatience):
			f.crashed = true
			f.Errorf("replica %d doesn't end with its input", r.index)
			r.kill()
		}
		if state := r.cmd.ProcessState; !r.killed && !state.Success() {
			f.crashed = true
			f.Errorf("replica %d: %s", r.index, state)
		}
	}
}

// tell logs what has happened.
func (f *processFleet) tell() {
	const most = 400
	reports := f.all(func(r replicaReport) bool { return r.Kind != reportTripped })
	reports = reports[max(0, len(reports)-most):]
	var b strings.Builder
	for _, rep := range reports {
		answers := len(rep.Answers)
		rep.Answers = nil
		line, _ := json.Marshal(rep)
		fmt.Fprintf(&b, "replica %d: %s %d answers\n", rep.Replica, line, answers)
	}
	for _, r := range f.replicas {
		fmt.Fprintf(&b, "replica %d is process %d\n%s", r.index, r.cmd.Process.Pid,
			r.stderr.String())
	}
	f.t.Logf("the last reports:\n%s", b.String())
}

// do sends an order and returns its number.
func (r *replicaProcess) do(o replicaOrder) int {
	r.fleet.orders++
	o.ID = r.fleet.orders
	if err := r.in.Encode(o); err != nil {
		r.fleet.Fatalf("replica %d doesn't take orders: %v", r.index, err)
	}
	return o.ID
}

// kill ends the process as a crash does, and returns when it is gone.
func (r *replicaProcess) kill() {
	r.killed = true
	_ = r.cmd.Process.Kill()
	<-r.gone
}

// finish has the process close its cache and end, soon.
func (r *replicaProcess) finish() {
	r.ending = true
	_ = r.stdin.Close()
}

// stop has the process stand still as if its machine did, soon, and resume ends that.
func (r *replicaProcess) stop() {
	if r.stopped.IsZero() {
		r.stopped = time.Now()
	}
	r.signal(syscall.SIGSTOP)
}

func (r *replicaProcess) resume() { r.signal(syscall.SIGCONT) }

func (r *replicaProcess) signal(s syscall.Signal) {
	if err := r.cmd.Process.Signal(s); err != nil {
		r.fleet.Fatalf("replica %d: %v: %v", r.index, s, err)
	}
}

func (r *replicaProcess) ended() bool {
	select {
	case <-r.gone:
		return true
	default:
		return false
	}
}
