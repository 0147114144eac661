package tenure

import (
	"sync"
	"time"
)

const (
	// mostDebts limits the number of debts while the system doesn't answer. Further locks end by
	// themselves.
	mostDebts = 10_000

	mostDebtPause = time.Second
)

// Debts are locks that no holder has any longer but that the system may still have. The system
// didn't answer when they were given back. If it hangs, it may also execute the request for a lock
// later. Each lock is given back repeatedly until the system answers. While there are debts, one
// goroutine works on all of them, so that a system that is down doesn't cost a goroutine for each
// lock.
type Debts struct {
	keeper *Keeper
	pause  time.Duration // pause before the first try

	mu     sync.Mutex // guards the fields below
	all    []debt     // the oldest first
	paying bool
}

type debt struct {
	until time.Time   // when the lock has ended by itself
	pay   func() bool // reports whether the system has answered
}

// NewDebts returns an empty Debts. While the system doesn't answer, there is a pause before each
// try. The pause doubles up to a second.
func NewDebts(keeper *Keeper, pause time.Duration) *Debts {
	return &Debts{keeper: keeper, pause: pause}
}

// Owe calls pay repeatedly, until pay reports that the system has answered, until the time until,
// or until the keeper is closed. If there are already mostDebts debts, Owe does nothing.
func (o *Debts) Owe(until time.Time, pay func() bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.all) == mostDebts {
		return
	}
	o.all = append(o.all, debt{until, pay})
	if !o.paying {
		o.paying = true
		o.keeper.Go(o.payAll)
	}
}

// Len returns the number of debts.
func (o *Debts) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all)
}

// payAll gives debts back until there are none, or until Close. The remaining locks then end by
// themselves.
func (o *Debts) payAll() {
	pause := o.pause
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-o.keeper.Closed():
			o.drop()
			return
		}
		for {
			d, ok := o.oldest()
			if !ok {
				return
			}
			if !d.pay() {
				break
			}
			o.paid()
			pause = o.pause
		}
		pause = min(2*pause, max(mostDebtPause, o.pause))
		timer.Reset(pause)
	}
}

// oldest returns the oldest debt. If there is none, it records that payAll ends.
func (o *Debts) oldest() (d debt, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.all) > 0 && !time.Now().Before(o.all[0].until) {
		o.all = o.all[1:]
	}
	if len(o.all) == 0 {
		o.all, o.paying = nil, false
		return d, false
	}
	return o.all[0], true
}

// paid removes the oldest debt. Only payAll removes debts.
func (o *Debts) paid() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = o.all[1:]
}

// drop removes all debts.
func (o *Debts) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all, o.paying = nil, false
}
