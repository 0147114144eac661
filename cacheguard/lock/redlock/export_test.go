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

// SetNodeTimeout sets a timeout that New doesn't accept. Tests need it for replies that come after
// the end of the lease.
func (l *Locker) SetNodeTimeout(d time.Duration) {
	l.opts.NodeTimeout = d
	for _, m := range l.masters {
		m.timeout = d
		if view, ok := m.rdb.(*redis.Client); ok {
			view.Options().ReadTimeout, view.Options().WriteTimeout = d, d
		}
	}
}

// WarmTimeout is the limit of Warm outside of tests.
const WarmTimeout = warmTimeout

// SetWarmTimeout sets the limit of Warm, which is too short for a busy machine.
func (l *Locker) SetWarmTimeout(d time.Duration) { l.warmTimeout = d }

// SetMostPause sets the time after which a call that gets messages sends its request again without
// a message. Call SetMostPause before the locker is used.
func (l *Locker) SetMostPause(d time.Duration) { l.mostPause = d }

// Silent returns the masters that didn't reply the last time.
func (l *Locker) Silent() (masters []int) {
	for i, m := range l.masters {
		if m.silent.Load() {
			masters = append(masters, i)
		}
	}
	return masters
}

// Answers returns the number of replies of a master.
func (l *Locker) Answers(master int) uint64 { return l.masters[master].answers.Load() }

// Doubts reports whether two masters are known to be one server.
func (l *Locker) Doubts() bool { return l.twins.Load() != nil }

// Deaf makes a locker work without messages. Call Deaf before the locker is used.
func (l *Locker) Deaf() { l.messages.closed = true }

// Waiting returns the number of Lock calls for a name that wait in this process.
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

// Debts returns the number of releases that a master hasn't confirmed.
func (l *Locker) Debts(master int) int { return l.masters[master].debts.Len() }
