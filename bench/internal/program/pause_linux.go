package program

import (
	"syscall"
	"time"
)

// pause sleeps in the kernel. In an idle process time.Sleep returns up to a millisecond late,
// because epoll counts in milliseconds.
func pause(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil) // a signal ends it early, so callers check the clock
}
