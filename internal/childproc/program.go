package childproc

import (
	"os"
	"os/exec"
	"syscall"
)

// Program says how a server is started.
type Program struct {
	// Name is what it is called in errors, and in the name of its folder.
	Name string

	// Command returns how to start it in a folder, on a port of Loopback. It is called for every
	// start, so what a server left there when it was killed is there again. The process must stay a
	// child of this one, and log to its standard output or error. Command may set the SysProcAttr,
	// for another user or a group of its own.
	Command func(dir string, port int) (*exec.Cmd, error)

	// Ready reports whether the server answers, and not a stranger on the same port: logged looks
	// for words in what it has logged since this start. It is called again and again, and must not
	// take long.
	Ready func(addr string, logged func(words string) bool) bool

	// PortTaken are the words that it logs when somebody else has its port.
	PortTaken string

	// Quit asks it to end. The default is SIGTERM.
	Quit os.Signal
}

func (p Program) quit() os.Signal {
	if p.Quit == nil {
		return syscall.SIGTERM
	}
	return p.Quit
}
