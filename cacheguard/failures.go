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
}

// maxFailures bounds the memory; what is not remembered is a *LoadError.
const maxFailures = 1024

func (fs *failures) remember(key string, load ID, err error, d time.Duration) {
	if d <= 0 {
		return
	}
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
	fs.byKey[key] = failure{load: load, err: err, until: now.Add(d + time.Second)}
}

func (fs *failures) find(key string, load ID) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f, ok := fs.byKey[key]; ok && f.load == load {
		return f.err
	}
	return nil
}

func (fs *failures) forget(key string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.byKey, key)
}
