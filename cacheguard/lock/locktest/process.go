package locktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// order is an order of a case to a process. It is sent as a line of JSON on the process' standard
// input.
type order struct {
	ID    int // the report has the same ID
	Do    string
	Name  string
	Names []string      // of doAll
	Token int64         // of doContinue
	Hold  int           // the ID of the order that acquired
	Wait  time.Duration // time limit of orders that acquire
}

const (
	doLock     = "lock"
	doTry      = "try"
	doContinue = "continue"
	doSeize    = "seize"
	doAll      = "all"
	doUnlock   = "unlock"
	doErr      = "err"
)

// report is a message of a process. It is sent as a line of JSON on its standard output.
type report struct {
	ID    int
	Kind  string
	Token int64
	Err   string
	Is    []string // the names of the processErrors that Err wraps

	at time.Time // when the case received it
}

const (
	reportReady = "ready"
	reportDone  = "done"
	reportLost  = "lost" // Lost of the hold ID was closed
	reportGone  = "gone" // added by the test process: the child process has ended
)

// processErrors are the errors that a report can name.
var processErrors = map[string]error{
	"held":     lock.ErrHeld,
	"lost":     lock.ErrLost,
	"not held": lock.ErrNotHeld,
	"closed":   lock.ErrClosed,
	"deadline": context.DeadlineExceeded,
}

// processMain is the main function of a process. It carries out orders until its input ends, and
// returns the exit code.
func processMain(
	config string, open func(config string) (lock.Locker, func(), error), stdin io.Reader,
	stdout io.Writer,
) int {
	locker, end, err := open(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "locktest: opening a locker:", err)
		return 1
	}
	defer end()
	p := &process{locker: locker, out: json.NewEncoder(stdout), holds: make(map[int]lock.Lock)}
	p.say(report{Kind: reportReady})
	for in := json.NewDecoder(stdin); ; {
		var o order
		switch err := in.Decode(&o); {
		case errors.Is(err, io.EOF):
			return 0
		case err != nil:
			fmt.Fprintln(os.Stderr, "locktest: reading orders:", err)
			return 1
		}
		go p.obey(o)
	}
}

// process is the state of a child process.
type process struct {
	locker lock.Locker

	mu    sync.Mutex // guards the fields below
	out   *json.Encoder
	holds map[int]lock.Lock // by the ID of the order that acquired
}

func (p *process) obey(o order) {
	ctx := context.Background()
	switch o.Do {
	case doLock, doTry, doContinue, doSeize, doAll:
		ctx, cancel := context.WithTimeout(ctx, o.Wait)
		defer cancel()
		held, err := p.acquire(ctx, o)
		if err != nil {
			if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
				err = otherDeadline{err}
			}
			p.done(o, 0, err)
			return
		}
		p.mu.Lock()
		p.holds[o.ID] = held
		p.mu.Unlock()
		p.done(o, held.Token(), nil)
		<-held.Lost()
		p.say(report{ID: o.ID, Kind: reportLost})
	case doUnlock:
		p.done(o, 0, p.hold(o).Unlock(ctx))
	case doErr:
		p.done(o, 0, p.hold(o).Err())
	default:
		p.done(o, 0, fmt.Errorf("order %d is to do %q", o.ID, o.Do))
	}
}

// otherDeadline is an error with a deadline that is not the order's, and doesn't count as such.
type otherDeadline struct{ error }

func (e otherDeadline) Is(target error) bool {
	return target != context.DeadlineExceeded && errors.Is(e.error, target)
}

func (p *process) acquire(ctx context.Context, o order) (lock.Lock, error) {
	switch o.Do {
	case doLock:
		return p.locker.Lock(ctx, o.Name)
	case doContinue:
		return p.locker.(lock.Continuer).Continue(ctx, o.Name, o.Token)
	case doSeize:
		return p.locker.(lock.Seizer).SeizeUnsafely(ctx, o.Name)
	case doAll:
		return lock.LockAll(ctx, p.locker, o.Names...)
	default:
		return p.locker.TryLock(ctx, o.Name)
	}
}

func (p *process) hold(o order) lock.Lock {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holds[o.Hold]
}

func (p *process) done(o order, token int64, err error) {
	r := report{ID: o.ID, Kind: reportDone, Token: token}
	if err != nil {
		r.Err = err.Error()
		for name, is := range processErrors {
			if errors.Is(err, is) {
				r.Is = append(r.Is, name)
			}
		}
	}
	p.say(r)
}

func (p *process) say(r report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// An error doesn't matter: if the test process no longer reads the output, the input ends, too.
	_ = p.out.Encode(r)
}
