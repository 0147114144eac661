package tenure

import (
	"sync"
	"time"
)

const (
	// mostDebts bounds what is kept for a system that doesn't answer. What is beyond ends by
	// itself.
	mostDebts = 10_000

	mostDebtPause = time.Second
)

// Debts are locks that a system may have and that nobody holds any more, because it didn't answer
// when they were given back: it may carry out late, after a pause, what gave it the lock. They are
// given back again until it answers. There is one goroutine for all of them while there are any: a
// system that is down must not cost one for each lock.
type Debts struct {
	keeper *Keeper
	pause  time.Duration // before the first try

	mu     sync.Mutex // guards what follows
	all    []debt     // the oldest first
	paying bool
}

type debt struct {
	until time.Time   // then it has ended by itself
	pay   func() bool // reports whether the system has answered
}

// NewDebts returns debts without any. There is a pause before each try to pay while the system
// doesn't answer, twice as long each time, up to a second.
func NewDebts(keeper *Keeper, pause time.Duration) *Debts {
	return &Debts{keeper: keeper, pause: pause}
}

// Owe has pay be called until it reports that the system has answered, until then, or until the
// keeper is closed.
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

// Len is how many there are.
func (o *Debts) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all)
}

// payAll ends when there are none, or with Close: what is left then ends by itself.
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

// oldest returns the debt that is due first, or ends the paying.
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

// paid takes the oldest away. Only payAll takes any.
func (o *Debts) paid() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = o.all[1:]
}

// drop forgets all.
func (o *Debts) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all, o.paying = nil, false
}
