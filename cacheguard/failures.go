package cacheguard

import (
	"sync"
	"time"
)

// failures remembers the error values of loads that failed in this process for as long as the store remembers that
// they failed, so that callers here can examine the error itself and not only its text.
type failures struct {
	mu    sync.Mutex // guards byKey
	byKey map[string]failure
}

type failure struct {
	load  ID
	err   error
	until time.Time

	from, to time.Time // the back-off is over for others, but not yet for this process
}

// maxFailures bounds the memory; what is not remembered is a *LoadError.
const maxFailures = 1024

// remember keeps the error of a load that has just failed for at least the time of its back-off and of a lease.
func (fs *failures) remember(key string, load ID, err error, backoff, lease time.Duration) {
	d := max(backoff, lease)
	fs.mu.Lock()
	defer fs.mu.Unlock()
	now := time.Now()
	if len(fs.byKey) >= maxFailures {
		for k, f := range fs.byKey {
			if now.After(f.until) {
				delete(fs.byKey, k)
			}
		}
		if len(fs.byKey) >= maxFailures {
			return
		}
	}
	if fs.byKey == nil {
		fs.byKey = make(map[string]failure)
	}
	fs.byKey[key] = failure{
		load: load, err: err, until: now.Add(d + time.Second),
		from: now.Add(backoff), to: now.Add(backoff + grace(backoff)),
	}
}

func (fs *failures) find(key string, load ID) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f, ok := fs.byKey[key]; ok && f.load == load {
		return f.err
	}
	return nil
}

// recent returns the error of a load that failed in this process if the back-off has just ended: others go first.
func (fs *failures) recent(key string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f, ok := fs.byKey[key]
	if !ok {
		return nil
	}
	if now := time.Now(); now.Before(f.from) || !now.Before(f.to) {
		return nil
	}
	return f.err
}

func (fs *failures) forget(key string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.byKey, key)
}
