package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// seat is a place for a process of holders. One that ends by itself is followed by another one.
type seat struct {
	number  int
	referee *referee
	lease   time.Duration

	begun chan struct{} // closed when its first process has begun

	mu     sync.Mutex // guards what follows
	child  *child     // nil while there is none
	ready  bool       // it has begun
	orders []any      // that are to be sent; one who stands still reads none
	more   chan struct{}
	over   bool // no more processes
}

const (
	mostDeaths = 100              // of one seat: then something else is wrong
	toEnd      = 30 * time.Second // for a process to finish, on a busy machine
)

// run has processes sit here, one after another, until finish.
func (s *seat) run(ctx context.Context, plan holdersPlan) error {
	plan.Process = s.number
	for range mostDeaths {
		said := &tail{}
		c, err := startChildAs(ctx, func(cmd *exec.Cmd) { cmd.Stderr = said; ownGroup(cmd) }, "locks-process")
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.child, s.orders, s.more = c, []any{plan}, make(chan struct{}, 1)
		if s.over {
			s.orders = append(s.orders, holderOrder{Do: toFinish})
		}
		s.more <- struct{}{}
		more := s.more
		s.mu.Unlock()
		gone, sent := make(chan struct{}), make(chan struct{})
		go func() { defer close(sent); s.send(c, more, gone) }()
		s.listen(c)
		close(gone)
		s.mu.Lock()
		s.child, s.ready = nil, false
		s.mu.Unlock()
		_ = c.in.Close()
		<-sent
		err = c.cmd.Wait()
		s.mu.Lock()
		over := s.over
		s.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case over && err == nil:
			return nil
		}
		select {
		case <-s.begun:
		default:
			return fmt.Errorf("a process doesn't begin: %s", said.why(err))
		}
		s.referee.dies(s.number, said.why(err))
		if over {
			return nil
		}
		plan.Seed++
	}
	return fmt.Errorf("process %d has ended %d times", s.number, mostDeaths)
}

// order has an order be sent, at some time.
func (s *seat) order(o any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child == nil {
		return
	}
	s.orders = append(s.orders, o)
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// send sends orders until the process is gone.
func (s *seat) send(c *child, more, gone <-chan struct{}) {
	for {
		select {
		case <-more:
		case <-gone:
			return
		}
		s.mu.Lock()
		orders := s.orders
		s.orders = nil
		s.mu.Unlock()
		for _, o := range orders {
			if c.order(o) != nil {
				return
			}
		}
	}
}

// listen tells the referee what the process says, until it is gone.
func (s *seat) listen(c *child) {
	for {
		var r holderReport
		if c.read(&r) != nil {
			return
		}
		at := holdOf{s.number, r.Hold}
		switch r.Said {
		case saysReady:
			s.mu.Lock()
			s.ready = true
			select {
			case <-s.begun:
			default:
				close(s.begun)
			}
			s.mu.Unlock()
		case saysBegins:
			s.referee.begins(at, r.Name, r.Token)
			s.order(holderOrder{Do: toGoOn, Hold: r.Hold})
		case saysActs:
			s.referee.acts(at)
			s.order(holderOrder{Do: toGoOn, Hold: r.Hold})
		case saysEnds:
			s.referee.ends(at)
		case saysAnswer:
			s.referee.answers(r.Question, r.Believes)
		case saysLost:
			s.referee.counts(func(t *lockTally) { t.Lost++ })
		case saysTrouble:
			s.referee.counts(func(t *lockTally) {
				t.Troubles++
				if t.Trouble == "" {
					t.Trouble = r.Error
				}
			})
		}
	}
}

// stand stops the process for less than a lease, about one, or more, again and again until ctx
// ends.
func (s *seat) stand(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		await(ctx, leases(rng, s.lease, 0.2, 1))
		var most, least float64
		switch rng.IntN(3) {
		case 0:
			least, most = 0.2, 0.8
		case 1:
			least, most = 0.9, 1.1
		case 2:
			least, most = 1.1, 2
		}
		d := leases(rng, s.lease, least, most)
		s.mu.Lock()
		c, ready := s.child, s.ready
		s.mu.Unlock()
		if !ready || ctx.Err() != nil {
			continue
		}
		s.referee.stands(s.number)
		if standStill(c.cmd.Process) == nil {
			await(ctx, d)
			_ = goOn(c.cmd.Process) // or it has died
		}
		s.referee.goesOn(s.number)
	}
}

// leases draws a time.
func leases(rng *rand.Rand, lease time.Duration, least, most float64) time.Duration {
	return time.Duration((least + rng.Float64()*(most-least)) * float64(lease))
}

// finish has the process end. It returns at once.
func (s *seat) finish() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.order(holderOrder{Do: toFinish})
}

// kill ends a process that doesn't finish.
func (s *seat) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child != nil {
		_ = s.child.cmd.Process.Kill()
	}
}

// tail keeps the beginning of what a process says last: the panic that it ends with.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := bytes.Index(b, []byte("panic: ")); at >= 0 {
		t.text = append([]byte(nil), b[at:]...)
	} else if len(t.text) < 4096 {
		t.text = append(t.text, b...)
	}
	return len(b), nil
}

// why is in a line why a process has ended.
func (t *tail) why(err error) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	line, _, _ := strings.Cut(strings.TrimSpace(string(t.text)), "\n")
	return strings.TrimSuffix(fmt.Sprintf("%v: %s", err, line), ": ")
}

// trouble has masters be stopped, killed and begun again, one after another, until ctx ends. All
// are well then.
func (ms masters) trouble(ctx context.Context, rng *rand.Rand, lease time.Duration, r *referee) error {
	for ctx.Err() == nil {
		await(ctx, leases(rng, lease, 0.2, 2))
		if ctx.Err() != nil {
			return nil
		}
		m := ms[rng.IntN(len(ms))]
		r.counts(func(t *lockTally) { t.Masters++ })
		var err error
		switch rng.IntN(4) {
		case 0, 1:
			if err = m.Pause(); err == nil {
				await(ctx, leases(rng, lease, 0.2, 2))
				err = m.Resume()
			}
		case 2: // as the documentation wants it: it has no locks that still count
			m.Kill()
			await(ctx, leases(rng, lease, 1.1, 2))
			if ctx.Err() != nil {
				r.forgets()
			}
			err = m.Restart()
		case 3:
			m.Kill()
			r.forgets()
			err = m.Restart()
		}
		if err != nil {
			return fmt.Errorf("a master: %w", err)
		}
	}
	return nil
}

// stress has holders in some processes use a locker for a while, and processes and servers stand
// still.
func (p locksPlan) stress(ctx context.Context, name, redis string) (t lockTally, err error) {
	var ms masters
	var where string
	var stop func()
	if name == "redlock" {
		ms, where, err = startMasters()
		stop = ms.stop
	} else {
		where, stop, err = startLocks(name, redis)
	}
	if err != nil {
		return t, err
	}
	defer stop()
	lease := max(p.Lease, leastStress[name])
	seats := make([]*seat, p.Processes)
	r := newReferee(lease, func(process int, hold, question int64) {
		seats[process].order(holderOrder{Do: toSay, Hold: hold, Question: question})
	})
	plan := holdersPlan{Locker: name, Where: where, Lease: lease, Goroutines: p.Goroutines, Seed: p.Seed}
	prefix := freshPrefix()
	for n := range p.Names {
		plan.Names = append(plan.Names, fmt.Sprintf("%s%d", prefix, n))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := make(chan error, p.Processes)
	for n := range seats {
		seats[n] = &seat{number: n, referee: r, lease: lease, begun: make(chan struct{})}
	}
	for _, s := range seats {
		go func() { ends <- s.run(ctx, plan) }()
	}
	for _, s := range seats {
		select {
		case <-s.begun:
		case err := <-ends:
			ends <- err
			cancel()
		case <-ctx.Done():
		}
	}
	troubled, calm := context.WithTimeout(ctx, p.Time)
	defer calm()
	var troubles sync.WaitGroup
	for n, s := range seats {
		troubles.Go(func() { s.stand(troubled, rand.New(rand.NewPCG(p.Seed, uint64(n)))) })
	}
	var broken [2]error
	if len(ms) > 0 { // two at once are a minority
		for i, some := range []masters{ms[:2], ms[2:]} {
			troubles.Go(func() { broken[i] = some.trouble(troubled, rand.New(rand.NewPCG(p.Seed, uint64(1000+i))), lease, r) })
		}
	}
	troubles.Wait()
	for _, s := range seats {
		s.finish()
	}
	err = errors.Join(broken[:]...)
	timeout := time.NewTimer(toEnd)
	defer timeout.Stop()
	for range seats {
		select {
		case e := <-ends:
			err = errors.Join(err, e)
		case <-timeout.C:
			for _, s := range seats {
				s.kill()
			}
			err = errors.Join(err, fmt.Errorf("a process didn't finish within %v", toEnd), <-ends)
		}
	}
	r.counts(func(all *lockTally) { t = *all })
	t.Locker = name
	return t, errors.Join(err, ctx.Err())
}
