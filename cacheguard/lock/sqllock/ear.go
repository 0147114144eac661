package sqllock

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/report"
)

const (
	firstPause = 20 * time.Millisecond // the pause before listening again
	mostPause  = 2 * time.Second
)

// ear listens to notifications, on one connection for all locks. It begins to listen when the first
// call waits.
type ear struct {
	l        *Locker
	standing atomic.Bool // notifications arrive

	ctx  context.Context // ended by close; only the ear uses it
	end  context.CancelFunc
	once sync.Once
}

func (e *ear) init(l *Locker) {
	e.l = l
	e.ctx, e.end = context.WithCancel(context.Background())
}

// channel is the channel for notifications of releases. Tables with the same name in one database
// share it.
func (l *Locker) channel() string { return l.opts.Table }

// open begins to listen, if Options.Listen is set. It is called during an acquisition, so Close
// waits for the goroutine.
func (e *ear) open() {
	if e.l.opts.Listen != nil {
		e.once.Do(func() { e.l.keeper.Go(e.run) })
	}
}

func (e *ear) close() { e.end() }

var (
	deafLine = report.Line{Level: slog.LevelWarn,
		Text:  "sqllock: notifications don't arrive; waiters ask from time to time",
		Means: "a lock is handed over later than it could be", See: "locks-cant-be-had"}
	heardLine = report.Line{
		Level: slog.LevelInfo, Text: "sqllock: notifications arrive again",
		See: "locks-cant-be-had",
	}
)

var errNotSaid = errors.New("it returned without an error")

// run calls Options.Listen again and again, until close.
func (e *ear) run() {
	pause := firstPause
	var spell report.Spell
	for e.ctx.Err() == nil {
		err := e.l.opts.Listen(e.ctx, e.l.channel(), func() {
			pause = firstPause
			spell.End(e.ctx, heardLine, e.l.opts.Logger, "channel", e.l.channel())
			e.turn(true)
		}, e.heard)
		e.turn(false)
		if e.ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errNotSaid
		}
		spell.Begin(e.ctx, deafLine, e.l.opts.Logger, "channel", e.l.channel(), "error", err)
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-e.ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, mostPause)
	}
}

// turn records whether notifications arrive. It wakes the waiting calls in both cases, because
// notifications were missed before, or because later notifications may be missed.
func (e *ear) turn(standing bool) {
	if e.standing.Swap(standing) != standing || standing {
		e.l.waiting.all()
	}
}

// heard receives the notification that a lock was given back. If the payload is not a name, another
// program has sent the notification, and heard ignores it.
func (e *ear) heard(payload string) {
	if name, err := hex.DecodeString(payload); err == nil {
		e.l.waiting.heard(string(name))
	}
}
