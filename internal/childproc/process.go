package childproc

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"
)

// process is a started child. It has one goroutine, which ends with it.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the child has ended
	err    error         // how the child ended; read it after exited is closed
}

// startProcess starts cmd in a folder, with its output in the folder's log.
func startProcess(cmd *exec.Cmd, dir *workdir) (*process, error) {
	p := &process{cmd: cmd, exited: make(chan struct{})}
	cmd.Dir = dir.path
	// For a file, package exec needs no goroutine that copies the output.
	cmd.Stdout = dir.log
	cmd.Stderr = dir.log
	dieWithParent(cmd)

	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run starts the child and waits until the child ends.
//
// Linux sends the parent-death signal when the *thread* that started the child ends, not the
// process (golang/go#27505), and Go may end a thread at any time. So the thread is held for as long
// as the child lives.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.exited)
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	p.err = p.cmd.Wait()
}

func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// kill ends the child and returns when the child has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if the child has already ended
	<-p.exited
}

// terminate asks the child to end. If the child doesn't end, terminate kills it.
func (p *process) terminate(ask os.Signal) {
	_ = resume(p.cmd.Process) // a stopped process would not see the signal
	if err := p.cmd.Process.Signal(ask); err != nil {
		p.kill()
		return
	}
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-p.exited:
	case <-timeout.C:
		p.kill()
	}
}

// State reads the state of a process and the process id of its parent from proc_pid_stat(5). They
// follow the process' name, which is in brackets and may have any characters. If the process
// doesn't exist, or the system has no such file, both are 0.
func State(pid int) (state byte, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	return fields[0][0], parent
}
