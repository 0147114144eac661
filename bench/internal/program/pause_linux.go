package program

import (
	"syscall"
	"time"
)

// pause sleeps in the kernel: time.Sleep of an idle process comes back up to a millisecond late,
// because epoll counts in those.
func pause(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil) // a signal ends it early: whoever calls looks at the clock
}
