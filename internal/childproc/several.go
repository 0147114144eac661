package childproc

import (
	"errors"
	"sync"
)

// StartAll starts n servers at the same time. If one of them can't be started, none stays running.
func StartAll[S Stopper](n int, start func(i int) (S, error)) ([]S, error) {
	servers, errs := make([]S, n), make([]error, n)
	var starting sync.WaitGroup
	for i := range servers {
		starting.Go(func() { servers[i], errs[i] = start(i) })
	}
	starting.Wait()
	err := errors.Join(errs...)
	if err == nil {
		return servers, nil
	}
	var started []S
	for i, s := range servers {
		if errs[i] == nil {
			started = append(started, s)
		}
	}
	return nil, errors.Join(err, StopAll(started))
}

// StopAll stops servers at the same time.
func StopAll[S Stopper](servers []S) error {
	errs := make([]error, len(servers))
	var stopping sync.WaitGroup
	for i, s := range servers {
		stopping.Go(func() { errs[i] = s.Stop() })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// Addrs returns the addresses of servers.
func Addrs[S interface{ Addr() string }](servers []S) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr()
	}
	return addrs
}
