package childproc

import (
	"os"
	"os/exec"
	"syscall"
)

// Program describes how a server is started.
type Program struct {
	// Name is the server's name in errors and in the name of its folder.
	Name string

	// Command returns the command that starts the server in a folder, on a port of Loopback. It is
	// called for every start, with the same folder, so the files of a killed server are still in
	// the folder. The process must stay a child of this process, and must log to its standard
	// output or standard error. Command may set SysProcAttr, for instance for another user or a
	// separate process group.
	Command func(dir string, port int) (*exec.Cmd, error)

	// Ready reports whether the server answers. Another program may answer on the same port, so
	// Ready can use logged, which reports whether the server has logged words since this start.
	// Ready is called repeatedly, and must not take long.
	Ready func(addr string, logged func(words string) bool) bool

	// PortTaken are the words that the server logs if another process has its port.
	PortTaken string

	// Quit is the signal that asks the server to end. The default is SIGTERM.
	Quit os.Signal
}

func (p Program) quit() os.Signal {
	if p.Quit == nil {
		return syscall.SIGTERM
	}
	return p.Quit
}
