package budget

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Waiting callers get slots in order, and at most Max callers have a slot.
func TestQueueIsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := Queue{Max: 2, Most: 10}
		var got []int
		var back []func()
		for i := range 5 {
			go func() {
				release, err := q.Take(t.Context(), time.Hour, nil, 1)
				if err != nil {
					t.Error(err)
				}
				got, back = append(got, i), append(back, release)
			}()
			synctest.Wait()
		}
		for n := 2; n <= 5; n++ {
			if len(got) != n || !slices.IsSorted(got) {
				t.Errorf("%v have a slot, want the first %d", got, n)
			}
			back[n-2]()
			synctest.Wait()
		}
		back[4]()
		if q.running != 0 || q.waiting.Len() != 0 {
			t.Errorf("in the end %d slots are taken, and %d wait", q.running, q.waiting.Len())
		}
	})
}

// A waiting caller stops waiting when it is urged, when its context or its patience ends, or if too
// many callers already wait.
func TestQueueHasEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := Queue{Max: 1, Most: 2}
		first, err := q.Take(t.Context(), time.Hour, nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) })
		if _, err := q.Take(ctx, time.Hour, nil, 1); !errors.Is(err, gone) {
			t.Errorf("its context has ended: %v", err)
		}
		if _, err := q.Take(t.Context(), time.Second, nil, 1); !errors.Is(err, ErrOverloaded) {
			t.Errorf("its patience has ended: %v", err)
		}
		urged := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(urged) })
		if release, err := q.Take(t.Context(), time.Hour, urged, 1); err != nil || release == nil {
			t.Errorf("it was urged: %v", err)
		} else {
			release()
		}
		later, end := context.WithCancel(t.Context())
		go func() { _, _ = q.Take(later, time.Hour, nil, 1) }()
		synctest.Wait()
		if _, err := q.Take(t.Context(), time.Hour, nil, 0.5); !errors.Is(err, ErrOverloaded) {
			t.Errorf("half of the queue is taken: %v", err)
		}
		end()
		synctest.Wait()
		if first(); q.running != 0 || q.waiting.Len() != 0 {
			t.Errorf("in the end %d slots are taken, and %d wait", q.running, q.waiting.Len())
		}
	})
}

// A caller that can do without a slot gets one as long as half of the slots stay free.
func TestQueueTry(t *testing.T) {
	q := Queue{Max: 5, Most: 10}
	var back []func()
	for n, want := range []bool{true, true, false} {
		release := q.Try()
		if (release != nil) != want {
			t.Errorf("with %d of 5 taken there is a slot: %v", n, release != nil)
		}
		back = append(back, release)
	}
	back[0]()
	if release := q.Try(); release == nil {
		t.Error("a slot that was given back isn't there")
	} else {
		release()
	}
	if back[1](); q.running != 0 {
		t.Errorf("in the end %d slots are taken", q.running)
	}
	if one := (&Queue{Max: 1}); one.Try() != nil {
		t.Error("the only slot was taken")
	}
}

// Less than half of the slots are taken, or not.
func TestQueueSpare(t *testing.T) {
	// With so many taken there is none to spare any more.
	for most, spare := range map[int]int{1: 1, 2: 1, 3: 2, 4: 2} {
		q := Queue{Max: most}
		for n := range most {
			if got := q.Spare(); got != (n < spare) {
				t.Errorf("with %d of %d taken: %v", n, most, got)
			}
			if _, err := q.Take(t.Context(), 0, nil, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// permits are those of one budget in memory.
type permits struct {
	max int

	mu    sync.Mutex // guards what follows
	ends  map[ID]time.Time
	down  error
	lives []ID // taken or renewed, in order
	tell  []*Fleet
}

func (p *permits) Take(
	_ context.Context, token ID, ttl time.Duration,
) (taken bool, wait time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down != nil {
		return false, 0, p.down
	}
	now, wait := time.Now(), time.Hour
	for id, end := range p.ends {
		if id == token {
			continue
		}
		if left := end.Sub(now); left > 0 {
			wait = min(wait, left)
		} else {
			delete(p.ends, id)
		}
	}
	if _, mine := p.ends[token]; !mine && len(p.ends) >= p.max {
		return false, wait, nil
	}
	p.ends[token], p.lives = now.Add(ttl), append(p.lives, token)
	return true, 0, nil
}

func (p *permits) Return(_ context.Context, token ID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ends, token)
	for _, f := range p.tell {
		f.Returned()
	}
	return p.down
}

func (p *permits) Listening() bool { return true }

func (p *permits) fleet(log *slog.Logger) *Fleet {
	f := NewFleet("budget", p)
	f.LogTo(log)
	p.tell = append(p.tell, f)
	return f
}

// Two processes share a budget of one: who waits gets the permit when it is returned, one that is
// held is renewed for as long as it is, and none is left behind.
func TestFleetShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &permits{max: 1, ends: map[ID]time.Time{}}
		a, b := p.fleet(slog.Default()), p.fleet(slog.Default())
		back, err := a.Take(t.Context(), time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		var other func()
		go func() {
			if other, err = b.Take(t.Context(), time.Hour, nil); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(3 * permitTTL)
		if synctest.Wait(); other != nil || len(p.lives) < 9 {
			t.Errorf("the other has it, too: %v; it was renewed %d times in three times its time",
				other != nil, len(p.lives))
		}
		back()
		if synctest.Wait(); other == nil {
			t.Fatal("the other was not told that it is returned")
		}
		other()
		time.Sleep(permitTTL)
		if synctest.Wait(); len(p.ends) != 0 || a.renewing || b.renewing {
			t.Errorf("%d permits are left, renewing %v, %v", len(p.ends), a.renewing, b.renewing)
		}
	})
}

// Who waits for a permit goes on when it is urged, and gives up when its context or its patience
// ends.
func TestFleetHasEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &permits{max: 0, ends: map[ID]time.Time{}}
		f := p.fleet(slog.Default())
		for _, behind := range []bool{false, true} { // of one who asks the store
			if behind {
				f.turn <- struct{}{}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := f.Take(ctx, time.Hour, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("its context has ended: %v", err)
			}
			cancel()
			if _, err := f.Take(t.Context(), time.Second, nil); !errors.Is(err, ErrOverloaded) {
				t.Errorf("its patience has ended: %v", err)
			}
			urged := make(chan struct{})
			time.AfterFunc(time.Second, func() { close(urged) })
			if back, err := f.Take(t.Context(), time.Hour, urged); err != nil {
				t.Errorf("it was urged: %v", err)
			} else {
				back()
			}
		}
	})
}

// While the store can't be used nobody waits for it, and the log says so once.
func TestFleetWithoutItsStore(t *testing.T) {
	var out bytes.Buffer
	p := &permits{max: 1, ends: map[ID]time.Time{}, down: fmt.Errorf("down")}
	f := p.fleet(slog.New(slog.NewTextHandler(&out, nil)))
	for i := range 6 {
		if i == 3 {
			p.down = nil
		}
		back, err := f.Take(t.Context(), time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		back()
	}
	if lines := strings.Count(out.String(), "\n"); lines != 2 || len(p.ends) != 0 {
		t.Errorf("%d lines, %d permits left:\n%s", lines, len(p.ends), out.String())
	}
}
