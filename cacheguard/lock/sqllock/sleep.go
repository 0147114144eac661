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
	// Between two requests for a lock whose release will send a notification.
	drowsy = 2 * time.Second
)

// sleep computes how long a waiting call sleeps before it sends its next request.
type sleep struct {
	first  time.Duration
	most   time.Duration
	drowsy time.Duration
	step   time.Duration
}

func newSleep(first, most, drowsy time.Duration) *sleep {
	s := &sleep{first: min(first, most), most: most, drowsy: drowsy}
	s.restart()
	return s
}

// restart makes the next sleep short again. It is called after the waiting call was woken, because
// another release may follow soon.
func (s *sleep) restart() { s.step = s.first }

// next returns the next sleep. The sleeps grow up to most, with a random part. If the end of the
// holder's lease is known, no sleep ends more than a millisecond after this end. If a notification
// is expected, the sleep only covers the case that the notification is lost.
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

// sleep returns when the next request is due: after d, or earlier if the place is woken with
// askNow. With askLater the request is due after the longest sleep. If ctx ends first, it returns
// the reason.
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
