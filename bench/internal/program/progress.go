package program

import (
	"fmt"
	"io"
	"os"
)

// progress shows on a terminal what the program does, in one line that is overwritten.
type progress struct {
	w        io.Writer
	terminal bool
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil {
			p.terminal = info.Mode()&os.ModeCharDevice != 0
		}
	}
	return p
}

func (p *progress) say(format string, args ...any) {
	if p.terminal {
		fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
	}
}

// done clears the line.
func (p *progress) done() { p.say("") }
