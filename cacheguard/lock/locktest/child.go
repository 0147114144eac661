package locktest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// child is a process that a case has started: a second run of this test binary.
type child struct {
	e      *env
	cmd    *exec.Cmd
	stdin  io.Closer
	out    *json.Encoder
	stderr bytes.Buffer // read it only after gone is closed
	gone   chan struct{}
	orders int

	mu      sync.Mutex // guards the fields below
	reports []report
	more    chan struct{} // closed when there are more reports
}

// start starts a process that opens its own locker.
func (e *env) start() *child {
	e.Helper()
	switch {
	case e.fleet.Process == "":
		e.Skipf("the fleet doesn't say how to open a locker in another process")
	case !mainCalled:
		e.Fatalf("TestMain doesn't call locktest.Main, so the test binary can't be started as a process of the fleet")
	case !canSignal:
		e.Skipf("processes can't be stopped on this system")
	}
	program, err := os.Executable()
	if err != nil {
		e.unlucky("the test binary: %v", err)
	}
	p := &child{
		e: e, cmd: exec.Command(program), gone: make(chan struct{}), more: make(chan struct{}),
	}
	p.cmd.Env = append(os.Environ(), processEnv+"="+e.fleet.Process,
		// By default the race detector makes each process sleep for a second at its end.
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=50")
	p.cmd.Stderr = &p.stderr
	setGroup(p.cmd)
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		e.unlucky("a process: %v", err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		e.unlucky("a process: %v", err)
	}
	if err := p.cmd.Start(); err != nil {
		e.unlucky("a process doesn't start: %v", err)
	}
	p.stdin, p.out = stdin, json.NewEncoder(stdin)
	go p.listen(stdout)
	e.atEnd(p.end)
	p.await("the process is ready", func(r report) bool { return r.Kind == reportReady })
	return p
}

// listen records the process' reports until the process is gone.
func (p *child) listen(stdout io.Reader) {
	defer close(p.gone)
	for in := json.NewDecoder(stdout); ; {
		var r report
		if err := in.Decode(&r); err != nil {
			_ = p.cmd.Process.Kill() // the process may have written a line that is no report
			_ = p.cmd.Wait()
			p.add(report{Kind: reportGone})
			return
		}
		p.add(r)
	}
}

func (p *child) add(r report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.at = time.Now()
	p.reports = append(p.reports, r)
	close(p.more)
	p.more = make(chan struct{})
}

// await returns the first report that matches, as soon as there is one.
func (p *child) await(what string, match func(report) bool) report {
	p.e.Helper()
	timeout := time.NewTimer(2 * p.e.limit) // a process takes time to start
	defer timeout.Stop()
	for next := 0; ; {
		p.mu.Lock()
		reports, more := p.reports, p.more
		p.mu.Unlock()
		for ; next < len(reports); next++ {
			if match(reports[next]) {
				return reports[next]
			}
			if reports[next].Kind == reportGone {
				<-p.gone
				p.e.Fatalf("%s: the process has ended: %s\n%s", what, p.cmd.ProcessState,
					p.stderr.String())
			}
		}
		select {
		case <-more:
		case <-timeout.C:
			p.e.Fatalf("did not happen within %v: %s", 2*p.e.limit, what)
		}
	}
}

// do sends an order and returns its number.
func (p *child) do(o order) int {
	p.e.Helper()
	p.orders++
	o.ID = p.orders
	if err := p.out.Encode(o); err != nil {
		p.e.Fatalf("a process doesn't take orders: %v", err)
	}
	return o.ID
}

// done waits until the process has carried out an order, and returns its report.
func (p *child) done(id int) report {
	p.e.Helper()
	return p.await("an order is carried out", func(r report) bool {
		return r.ID == id && r.Kind == reportDone
	})
}

// lock makes the process acquire a lock, and returns the number of its hold and the token.
func (p *child) lock(name string) (hold int, token int64) {
	p.e.Helper()
	hold = p.do(order{Do: doLock, Name: name, Wait: p.e.limit})
	return hold, p.acquired(hold)
}

// acquired returns the token of a Lock that was ordered.
func (p *child) acquired(hold int) int64 {
	p.e.Helper()
	r := p.done(hold)
	switch {
	case r.is(lock.ErrHeld), r.is(lock.ErrLost), r.isTimeout():
		p.e.Fatalf("Lock in another process: %s", r.Err)
	case r.Err != "":
		p.e.unlucky("Lock in another process: %s", r.Err)
	}
	return r.Token
}

// holds checks that the process reports that it has the lock.
func (p *child) holds(hold int) {
	p.e.Helper()
	switch r := p.done(p.do(order{Do: doErr, Hold: hold})); {
	case r.is(lock.ErrLost):
		p.e.unlucky("a process has lost its lock")
	case r.Err != "":
		p.e.Fatalf("Err of a lock that is held, in another process: %s", r.Err)
	}
}

// unlock makes the process unlock one of its holds.
func (p *child) unlock(hold int) {
	p.e.Helper()
	if r := p.done(p.do(order{Do: doUnlock, Hold: hold})); r.Err != "" {
		p.e.unlucky("Unlock in another process: %s", r.Err)
	}
}

// kill ends the process like a crash, and returns when it is gone.
func (p *child) kill() {
	_ = p.cmd.Process.Kill()
	<-p.gone
}

// stand stops the process at a point where a stopped process doesn't block the other users of the
// system.
func (p *child) stand() {
	for range 100 {
		if err := stop(p.cmd.Process); err != nil {
			p.e.unlucky("a process isn't stopped: %v", err)
		}
		if !p.e.fleet.OneWriter || p.e.mayWrite() {
			return
		}
		resume(p.cmd.Process)
	}
	p.e.unlucky("wherever a process is stopped, nobody else can write")
}

// mayWrite reports whether the system lets Lockers[2] write.
func (e *env) mayWrite() bool {
	ctx, cancel := context.WithTimeout(e.ctx, e.fleet.Lease/4)
	defer cancel()
	held, err := e.c.TryLock(ctx, e.name())
	if err != nil {
		return false
	}
	e.unlock(held)
	return true
}

// end tells the process to end by itself.
func (p *child) end() {
	resume(p.cmd.Process)
	_ = p.stdin.Close()
	select {
	case <-p.gone:
	case <-time.After(p.e.limit):
		p.kill()
		p.e.Errorf("a process doesn't end with its input:\n%s", p.stderr.String())
	}
}

func (r report) is(err error) bool {
	return slices.ContainsFunc(r.Is, func(name string) bool {
		return errors.Is(err, processErrors[name])
	})
}

func (r report) isTimeout() bool { return slices.Contains(r.Is, "deadline") }
