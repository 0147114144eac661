package sqllock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cacheguard/cacheguard/internal/tenure"
)

const (
	firstSleep = 5 * time.Millisecond
	leastSleep = time.Millisecond
	drowsy     = 2 * time.Second // between two looks at a lock whose release will be heard of
)

// sleep says how long a waiter sleeps before it asks again.
type sleep struct {
	most   time.Duration
	drowsy time.Duration
	step   time.Duration
}

func newSleep(most, drowsy time.Duration) *sleep {
	return &sleep{most: most, drowsy: drowsy, step: min(firstSleep, most)}
}

// restart is for a waiter that was woken: what it waited for has happened, so it may happen again
// soon.
func (s *sleep) restart() { s.step = min(firstSleep, s.most) }

// next is longer each time, by chance, and over when the lease of the holder is, as far as that is
// known. If there will be a notification, it is there for the case that this gets lost.
func (s *sleep) next(a answer, notified bool) time.Duration {
	d := s.step
	s.step = min(2*s.step, s.most)
	if notified && a.left > 0 {
		d = s.drowsy
	}
	d = d/2 + rand.N(d/2+1)
	if a.left > 0 {
		d = min(d, a.left+leastSleep)
	}
	return max(d, leastSleep)
}

// sleep returns when it is time to ask: after d, or when the place is told so. An error says why
// that will not come.
func (p *place) sleep(ctx context.Context, s *sleep, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case told := <-p.wake:
			s.restart()
			if told == askNow {
				return nil
			}
			timer.Reset(s.most)
		case <-ctx.Done():
			return tenure.Why(ctx)
		}
	}
}
