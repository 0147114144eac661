package redlock

import (
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	AcquireScript = acquireLua
	RenewScript   = renewLua
	ReleaseScript = releaseLua
)

// SetNodeTimeout is for what can't be had with a timeout that New takes: answers that come when the
// lease is over.
func (l *Locker) SetNodeTimeout(d time.Duration) {
	l.opts.NodeTimeout = d
	for _, m := range l.masters {
		m.timeout = d
		if view, ok := m.rdb.(*redis.Client); ok {
			view.Options().ReadTimeout, view.Options().WriteTimeout = d, d
		}
	}
}

// Silent are the masters that did not answer the last time.
func (l *Locker) Silent() (masters []int) {
	for i, m := range l.masters {
		if m.silent.Load() {
			masters = append(masters, i)
		}
	}
	return masters
}

// Answers is how often a master has answered.
func (l *Locker) Answers(master int) uint64 { return l.masters[master].answers.Load() }

// Doubts reports whether two masters are known to be one server.
func (l *Locker) Doubts() bool { return l.twins.Load() != nil }

// Deaf has a locker that was not used yet do without messages.
func (l *Locker) Deaf() { l.messages.closed = true }

// Waiting is how many Locks of a name wait in this process.
func (l *Locker) Waiting(name string) int {
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	if line := l.lines.all[name]; line != nil {
		return len(line.places)
	}
	return 0
}

// Listening reports whether messages arrive from all masters.
func (l *Locker) Listening() bool {
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	return !slices.Contains(l.lines.listening, false)
}

// Debts is how many locks are owed to a master.
func (l *Locker) Debts(master int) int { return l.masters[master].debts.Len() }
