package childproc

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// The prefix of all folders, so that each run can sweep the folders that earlier runs have
	// left.
	workdirPrefix = "cacheguard-"
	logName       = "server.log"
)

// workdir is the temporary folder in which a server runs, with the server's log. The log file is
// locked for as long as this process or the server has it open.
type workdir struct {
	path string
	log  *os.File
}

var sweepOnce sync.Once

func newWorkdir(name string) (*workdir, error) {
	sweepOnce.Do(sweep)
	path, err := os.MkdirTemp("", workdirPrefix+name+"-*")
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(path, logName), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	lockFile(log)
	return &workdir{path: path, log: log}, nil
}

func (d *workdir) remove() error {
	return errors.Join(d.log.Close(), os.RemoveAll(d.path))
}

func (d *workdir) logSize() (int64, error) {
	info, err := d.log.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// logged reports whether the log contains the text at or after the offset from.
func (d *workdir) logged(from int64, text string) bool {
	return strings.Contains(d.logAfter(from), text)
}

// logTail returns the end of the log, for an error message.
func (d *workdir) logTail() string {
	size, err := d.logSize()
	if err != nil {
		return err.Error()
	}
	return d.logAfter(max(0, size-2048))
}

func (d *workdir) logAfter(from int64) string {
	text := make([]byte, 64<<10)
	n, _ := d.log.ReadAt(text, from) // the error is io.EOF at the end of the file
	return string(text[:n])
}

// sweep removes the folders of runs that were killed before they could remove them. These are
// folders whose log no process has open any more. It doesn't remove new folders, because their
// owner may be about to lock the log.
func sweep() {
	// The pattern has no error.
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), workdirPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if abandoned(filepath.Join(dir, logName)) {
			_ = os.RemoveAll(dir) // another process may be removing the same folder
		}
	}
}

func abandoned(log string) bool {
	f, err := os.Open(log)
	if err != nil {
		return false
	}
	defer f.Close()
	return lockFile(f)
}
