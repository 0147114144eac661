package program

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// holderOrder is what a process of holders is told.
type holderOrder struct {
	Do       string
	Hold     int64
	Question int64
}

const (
	toGoOn   = "go on"  // what the hold asked for is done
	toSay    = "say"    // whether Err of a hold is nil
	toFinish = "finish" // give everything back, and end
)

// holderReport is what it says.
type holderReport struct {
	Said     string
	Hold     int64
	Name     string
	Token    int64
	Question int64
	Believes bool
	Error    string
}

const (
	saysReady   = "ready"
	saysBegins  = "begins"  // it has the lock, and waits to be told to go on
	saysActs    = "acts"    // it has looked at Err, and does what the lock protects; it waits, too
	saysEnds    = "ends"    // it doesn't count on the lock any more
	saysLost    = "lost"    // it was told that it had lost the lock
	saysAnswer  = "answer"  // to a question
	saysTrouble = "trouble" // an error that a lock may have when processes and servers stand still
)

// holdersPlan is what a process of holders is told at first.
type holdersPlan struct {
	Locker, Where string
	Lease         time.Duration
	Goroutines    int
	Names         []string
	Process       int
	Seed          uint64
}

// careless is of how many holders one doesn't look at Err after its work: it did before, and its
// work can't be interrupted.
const careless = 4

const toOpen = 20 // tries to open a locker

// holdersProcess is one process with holders, which acquire, hold and give back until they are told
// to finish.
func holdersProcess(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	redis.SetLogger(quiet{}) // a line for each connection that a master refuses
	in := json.NewDecoder(bufio.NewReader(stdin))
	var p holdersPlan
	if err := in.Decode(&p); err != nil {
		return err
	}
	var locker lock.Locker
	var end func()
	var err error
	for range toOpen { // others stand still already, maybe in the middle of something
		if locker, end, err = openLocks(ctx, p.Locker, p.Where, p.Lease); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	defer end()
	ctx, finish := context.WithCancel(ctx)
	defer finish()
	h := &holders{plan: p, locker: locker, out: json.NewEncoder(stdout), held: make(map[int64]*held)}
	var all sync.WaitGroup
	for n := range p.Goroutines {
		all.Go(func() { h.work(ctx, rand.New(rand.NewPCG(p.Seed, uint64(p.Process<<32|n)))) })
	}
	h.say(holderReport{Said: saysReady})
	finished := make(chan error, 1)
	go func() { finished <- h.listen(in, finish) }()
	<-ctx.Done()
	worked := make(chan struct{})
	go func() { all.Wait(); close(worked) }()
	select {
	case <-worked:
		return nil
	case err := <-finished: // nobody tells them to go on
		return err
	}
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// holders are those of one process.
type holders struct {
	plan   holdersPlan
	locker lock.Locker

	mu   sync.Mutex // guards what follows
	out  *json.Encoder
	last int64 // hold
	held map[int64]*held
}

// held is a lock that its holder counts on.
type held struct {
	lock.Lock
	id   int64
	goOn chan struct{}
}

// listen follows orders until there are no more.
func (h *holders) listen(in *json.Decoder, finish func()) error {
	defer finish()
	for {
		var o holderOrder
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch o.Do {
		case toFinish:
			finish()
		case toGoOn:
			h.mu.Lock()
			h.held[o.Hold].goOn <- struct{}{}
			h.mu.Unlock()
		case toSay:
			h.mu.Lock()
			one := h.held[o.Hold]
			h.sayLocked(holderReport{Said: saysAnswer, Question: o.Question, Believes: one != nil && one.Err() == nil})
			h.mu.Unlock()
		}
	}
}

func (h *holders) say(r holderReport) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sayLocked(r)
}

// sayLocked is say with h.mu held.
func (h *holders) sayLocked(r holderReport) { _ = h.out.Encode(r) } // if nobody reads any more, the orders end, too

// patience is how long a holder waits for a lock, and for its Unlock.
func (h *holders) patience() time.Duration { return 20 * h.plan.Lease }

// work is the life of a holder: it waits for a lock or tries to have it, holds it for a moment, or
// for several renewals, and does it again.
func (h *holders) work(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		acquire := h.locker.Lock
		if rng.IntN(8) == 0 {
			acquire = h.locker.TryLock
		}
		within, cancel := context.WithTimeout(ctx, h.patience())
		got, err := acquire(within, h.plan.Names[rng.IntN(len(h.plan.Names))])
		cancel()
		switch {
		case err == nil:
			h.hold(ctx, got, rng)
			continue
		case ctx.Err() != nil:
			return
		case !errors.Is(err, lock.ErrHeld):
			h.say(holderReport{Said: saysTrouble, Error: err.Error()})
		}
		await(ctx, time.Duration(rng.Int64N(int64(h.plan.Lease/10))))
	}
}

func (h *holders) hold(ctx context.Context, got lock.Lock, rng *rand.Rand) {
	one := &held{Lock: got, goOn: make(chan struct{}, 1)}
	defer h.giveBack(got)
	if got.Err() != nil { // it was had too late
		return
	}
	h.mu.Lock()
	h.last++
	one.id = h.last
	h.held[one.id] = one
	h.sayLocked(holderReport{Said: saysBegins, Hold: one.id, Name: got.Name(), Token: got.Token()})
	h.mu.Unlock()
	<-one.goOn

	work := time.Duration(rng.Int64N(int64(5 * time.Millisecond)))
	if rng.IntN(30) == 0 {
		work = time.Duration(rng.Int64N(int64(2 * h.plan.Lease)))
	}
	under, cancel := lock.Context(ctx, got)
	await(under, work)
	cancel()
	if rng.IntN(careless) == 0 || got.Err() == nil {
		h.say(holderReport{Said: saysActs, Hold: one.id})
		<-one.goOn
	}

	h.mu.Lock()
	delete(h.held, one.id)
	h.sayLocked(holderReport{Said: saysEnds, Hold: one.id})
	h.mu.Unlock()
}

// giveBack unlocks, and says what came of it.
func (h *holders) giveBack(got lock.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), h.patience())
	defer cancel()
	switch err := got.Unlock(ctx); {
	case errors.Is(err, lock.ErrLost):
		h.say(holderReport{Said: saysLost})
	case err != nil:
		h.say(holderReport{Said: saysTrouble, Error: fmt.Sprint("Unlock: ", err)})
	}
}

// await lets d pass, or less if ctx ends.
func await(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
