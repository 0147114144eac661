package redlock

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/internal/redislink"
	"github.com/cacheguard/cacheguard/internal/report"
)

// The scripts contain the same numbers.
const (
	tokenSize   = 26
	claimSize   = 24 // the start of a token that all tokens of a claim have in common
	waiterSize  = 8
	mostWaiters = 64
)

// parseMessage reads a message: how many processes wait, ':', the token that was released, and the
// name. A message may contain anything, because any client may send one.
func parseMessage(payload string) (waiting int, token, name string, ok bool) {
	number, rest, ok := strings.Cut(payload, ":")
	if !ok || len(rest) <= tokenSize {
		return 0, "", "", false
	}
	waiting, err := strconv.Atoi(number)
	return max(0, min(waiting, mostWaiters)), rest[:tokenSize], rest[tokenSize:], err == nil
}

// leastPatience is the shortest limit for the time until a subscription is confirmed. NodeTimeout
// would be too short, because it is meant for requests for locks.
const leastPatience = 250 * time.Millisecond

// messages are the subscriptions to all masters. They begin when the first Lock has to wait, or
// with Warm.
type messages struct {
	lines  *lines
	logger *slog.Logger

	mu     sync.Mutex // guards the fields below
	closed bool
	subs   []*redislink.Subscription // by master; nil before the subscriptions begin
}

// listen begins the subscriptions, if they haven't begun yet, and doesn't wait for their
// confirmation. It returns nil after Close.
func (l *Locker) listen() []*redislink.Subscription {
	m := &l.messages
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.subs == nil && !m.closed {
		for _, master := range l.masters {
			m.subs = append(m.subs, master.link.Subscribe(m.ear(master), "", l.channel()))
		}
	}
	return m.subs
}

var (
	deafLine = report.Line{Level: slog.LevelWarn,
		Text:  "redlock: messages of a master don't arrive",
		Means: "waiting calls ask this master from time to time", See: "locks-cant-be-had"}
	heardLine = report.Line{
		Level: slog.LevelInfo, Text: "redlock: messages of a master arrive again",
		See: "locks-cant-be-had",
	}
)

// ear receives the messages of one master.
func (m *messages) ear(master *master) redislink.Ear {
	var spell report.Spell
	return redislink.Ear{
		Restored: func(context.Context) {
			spell.End(context.Background(), heardLine, m.logger, "master", master.index)
			m.lines.listens(master.index, true)
		},
		Heard: func(payload string) {
			if waiting, token, name, ok := parseMessage(payload); ok {
				m.lines.heard(name, release{master.index, token}, waiting)
			}
		},
		Lost: func(err error) {
			if !errors.Is(err, context.Canceled) {
				spell.Begin(context.Background(), deafLine, m.logger, "master", master.index,
					"error", master.link.Told(err))
			}
			m.lines.listens(master.index, false)
		},
	}
}

// close ends the subscriptions.
func (m *messages) close() {
	m.mu.Lock()
	m.closed = true
	subs := m.subs
	m.mu.Unlock()
	var all sync.WaitGroup
	for _, sub := range subs {
		all.Go(sub.Stop)
	}
	all.Wait()
}
