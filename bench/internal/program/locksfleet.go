package program

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/wire"
)

// seat is a place for a process of holders. If a process ends by itself, a new process takes its
// place.
type seat struct {
	number  int
	referee *referee
	lease   time.Duration

	begun chan struct{} // closed when its first process has begun

	sitting atomic.Pointer[replica] // nil while no process is ready
}

const (
	mostDeaths = 100              // of one seat; after more deaths something else is wrong
	toEnd      = 30 * time.Second // for a process to finish, on a busy machine
)

// run starts processes in this seat, one after another, until life ends.
func (s *seat) run(
	ctx, life context.Context, p locksPlan, first openHolders, names []string,
) error {
	for again := range uint64(mostDeaths) {
		said := &tail{}
		r, err := startReplica(ctx, func(cmd *exec.Cmd) { cmd.Stderr = said; ownGroup(cmd) })
		if err != nil {
			return err
		}
		_, unable := ask(life, r, job[nothing](first))
		if unable == nil {
			s.sitting.Store(r)
			if again == 0 {
				close(s.begun)
			}
			var all sync.WaitGroup
			for n := range p.Goroutines {
				h := holder{
					s, r, names, rand.New(rand.NewPCG(p.Seed+again, uint64(s.number<<32|n))),
				}
				all.Go(func() { h.live(ctx, life) })
			}
			all.Wait()
		}
		s.sitting.Store(nil)
		_ = r.in.Close()
		err = r.wait()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case life.Err() != nil && err == nil:
			return nil
		case again == 0 && unable != nil:
			return fmt.Errorf("a process doesn't begin: %s", said.why(cmp.Or(err, unable)))
		}
		s.referee.dies(s.number, said.why(cmp.Or(err, unable)))
		if life.Err() != nil {
			return nil
		}
	}
	return fmt.Errorf("process %d has ended %d times", s.number, mostDeaths)
}

// holder is a user of locks. Its process acquires, holds and gives back locks for it, as it is
// told.
type holder struct {
	seat    *seat
	replica *replica
	names   []string
	rng     *rand.Rand
}

// careless: one of this many holders doesn't check Err after its work. It has checked Err before,
// and its work can't be interrupted.
const careless = 4

// live waits for a lock or tries to get it, and holds it for a moment or for several renewals. It
// repeats this until life ends or its process has ended.
func (h holder) live(ctx, life context.Context) {
	for life.Err() == nil {
		o := toAcquire{Try: h.rng.IntN(8) == 0, Name: h.names[h.rng.IntN(len(h.names))]}
		got, err := ask(life, h.replica, job[begun](o))
		switch {
		case life.Err() != nil || errors.Is(err, wire.ErrEnded):
			return
		case got.Hold != 0:
			if h.hold(ctx, life, o.Name, got) != nil {
				return
			}
			continue
		}
		h.trouble(err)
		await(life, time.Duration(h.rng.Int64N(int64(h.seat.lease/10))))
	}
}

// hold returns an error if the process has ended.
func (h holder) hold(ctx, life context.Context, name string, got begun) error {
	referee, at := h.seat.referee, holdOf{h.seat.number, got.Hold}
	referee.begins(at, name, got.Token)
	work := toWork{Hold: got.Hold, For: time.Duration(h.rng.Int64N(int64(5 * time.Millisecond)))}
	if h.rng.IntN(30) == 0 {
		work.For = time.Duration(h.rng.Int64N(int64(2 * h.seat.lease)))
	}
	work.Careless = h.rng.IntN(careless) == 0
	if acts, _ := ask(life, h.replica, job[bool](work)); acts {
		referee.acts(at)
	}
	referee.ends(at)
	lost, err := ask(ctx, h.replica, job[bool](toGiveBack(got.Hold)))
	switch {
	case errors.Is(err, wire.ErrEnded):
		return err
	case err != nil:
		h.trouble(fmt.Errorf("to unlock: %w", err))
	case lost:
		referee.counts(func(t *lockTally) { t.Lost++ })
	}
	return nil
}

// trouble counts an error that is allowed while processes and servers are stopped.
func (h holder) trouble(err error) {
	if err == nil {
		return
	}
	h.seat.referee.counts(func(t *lockTally) {
		t.Troubles++
		t.Trouble = cmp.Or(t.Trouble, err.Error())
	})
}

// stand stops the process for less than a lease, for about a lease, or for longer, again and again
// until ctx ends.
func (s *seat) stand(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		await(ctx, leases(rng, s.lease, 0.2, 1))
		reach := [][2]float64{{0.2, 0.8}, {0.9, 1.1}, {1.1, 2}}[rng.IntN(3)]
		d := leases(rng, s.lease, reach[0], reach[1])
		r := s.sitting.Load()
		if r == nil || ctx.Err() != nil {
			continue
		}
		s.referee.stands(s.number)
		if standStill(r.cmd.Process) == nil {
			await(ctx, d)
			_ = goOn(r.cmd.Process) // it may have died
		}
		s.referee.goesOn(s.number)
	}
}

// leases returns a random time, from least to most times a lease.
func leases(rng *rand.Rand, lease time.Duration, least, most float64) time.Duration {
	return time.Duration((least + rng.Float64()*(most-least)) * float64(lease))
}

// tail keeps the beginning of a process's output, about 4 KiB. If a panic ends the process, tail
// keeps the output from the panic on.
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

// why returns in one line why a process has ended.
func (t *tail) why(err error) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	line, _, _ := strings.Cut(strings.Trim(string(t.text), "= \n"), "\n") // a race begins with ==
	return strings.TrimSuffix(fmt.Sprintf("%v: %s", err, line), ": ")
}

// trouble stops, kills and restarts masters, one after another, until ctx ends. When it returns,
// all masters run.
func (ms masters) trouble(
	ctx context.Context, rng *rand.Rand, lease time.Duration, r *referee,
) error {
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
		case 2:
			// The master restarts as late as the documentation demands: the locks that it
			// has lost have ended by then.
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

// stress lets holders in some processes use a locker for a while, and stops processes and servers.
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	life, finish := context.WithCancel(ctx)
	defer finish()
	seats := make([]*seat, p.Processes)
	var r *referee
	r = newReferee(lease, func(process int, hold, question int64) {
		asked := seats[process].sitting.Load()
		if asked == nil {
			return
		}
		go func() { // a stopped process doesn't read its orders
			if believes, err := ask(ctx, asked, job[bool](toSay(hold))); err == nil {
				r.answers(question, believes)
			}
		}()
	})
	first := openHolders{Locker: name, Where: where, Lease: lease}
	var names []string
	prefix := freshPrefix()
	for n := range p.Names {
		names = append(names, fmt.Sprintf("%s%d", prefix, n))
	}
	ends := make(chan error, p.Processes)
	for n := range seats {
		seats[n] = &seat{number: n, referee: r, lease: lease, begun: make(chan struct{})}
	}
	for _, s := range seats {
		go func() { ends <- s.run(ctx, life, p, first, names) }()
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
	troubled, calm := context.WithCancel(ctx)
	defer calm()
	var troubles sync.WaitGroup
	troubles.Go(func() {
		defer calm()
		await(ctx, p.Time)
		within, cancel := context.WithTimeout(ctx, p.Wait)
		defer cancel()
		select {
		case <-r.handed:
		case <-within.Done():
		}
	})
	for n, s := range seats {
		troubles.Go(func() { s.stand(troubled, rand.New(rand.NewPCG(p.Seed, uint64(n)))) })
	}
	var broken [2]error
	if len(ms) > 0 { // two masters at once are a minority
		for i, some := range []masters{ms[:2], ms[2:]} {
			troubles.Go(func() {
				broken[i] = some.trouble(troubled, rand.New(rand.NewPCG(p.Seed, uint64(1000+i))),
					lease, r)
			})
		}
	}
	troubles.Wait()
	finish()
	err = errors.Join(broken[:]...)
	timeout := time.NewTimer(toEnd)
	defer timeout.Stop()
	for range seats {
		select {
		case e := <-ends:
			err = errors.Join(err, e)
		case <-timeout.C:
			cancel() // this kills the process
			err = errors.Join(err, fmt.Errorf("a process didn't finish within %v", toEnd), <-ends)
		}
	}
	r.counts(func(all *lockTally) { t = *all })
	t.Locker = name
	return t, errors.Join(err, ctx.Err())
}
