package redlock

import (
	"context"
	"sync"
	"time"
)

const (
	// mostDebts bounds what is kept for a master that doesn't answer. What is beyond ends by itself.
	mostDebts = 10_000

	mostSweepPause = time.Second
)

// debt is a lock that a master may have and that nobody holds any more.
type debt struct {
	key, token, name string
	until            time.Time // then it has ended by itself
}

// debts are those of one master, because it didn't answer. There is one goroutine for all of them while there are any:
// a master that is down must not cost one for each lock.
type debts struct {
	mu       sync.Mutex // guards what follows
	all      []debt     // the oldest first
	sweeping bool
}

// release gives a lock back on one master. If that doesn't answer, it is tried again until the lock has ended by itself.
func (l *Locker) release(ctx context.Context, m *master, d debt) answer {
	began := time.Now()
	a := m.release(ctx, d.key, d.token, l.channel(), d.name)
	switch {
	case a.said == nothing:
		l.owe(m, d)
	case a.place > 0:
		l.lines.yield(d.name, a.place, min(time.Since(began), m.timeout)) // it may be this process that took long
	}
	return a
}

func (l *Locker) owe(m *master, d debt) {
	m.debts.mu.Lock()
	defer m.debts.mu.Unlock()
	if len(m.debts.all) == mostDebts {
		return
	}
	m.debts.all = append(m.debts.all, d)
	if !m.debts.sweeping {
		m.debts.sweeping = true
		l.keeper.Go(func() { l.sweep(m) })
	}
}

// sweep pays a master's debts, with pauses while it doesn't answer. It ends when there are none, or with Close: what is
// left then ends by itself.
func (l *Locker) sweep(m *master) {
	pause := l.opts.NodeTimeout
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.keeper.Closed():
			m.debts.drop()
			return
		}
		for {
			d, ok := m.debts.oldest()
			if !ok {
				return
			}
			if a := m.release(context.Background(), d.key, d.token, l.channel(), d.name); a.said == nothing {
				break
			}
			m.debts.paid()
			pause = l.opts.NodeTimeout
		}
		pause = min(2*pause, max(mostSweepPause, l.opts.NodeTimeout))
		timer.Reset(pause)
	}
}

// oldest returns the debt that is due first, or ends the sweeping.
func (o *debts) oldest() (d debt, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.all) > 0 && !time.Now().Before(o.all[0].until) {
		o.all = o.all[1:]
	}
	if len(o.all) == 0 {
		o.all, o.sweeping = nil, false
		return d, false
	}
	return o.all[0], true
}

// paid takes the oldest away. Only the sweeper takes any.
func (o *debts) paid() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = o.all[1:]
}

// drop forgets all.
func (o *debts) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all, o.sweeping = nil, false
}
