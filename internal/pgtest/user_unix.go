//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// unprivileged makes a command run as another user if this process is root.
func unprivileged(cmd *exec.Cmd) error {
	if os.Getuid() != 0 {
		return nil
	}
	var errs error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(errUID, errGID); err != nil {
			return err
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
		}
		return nil
	}
	return fmt.Errorf("pgtest: PostgreSQL refuses to run as root, and there is nobody else: %w",
		errs)
}

// own makes the user of a command the owner of a folder.
func own(dir string, cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		return nil
	}
	as := cmd.SysProcAttr.Credential
	return os.Chown(dir, int(as.Uid), int(as.Gid))
}
