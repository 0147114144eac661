package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/cacheguard/cacheguard/internal/redislink"
)

// errTwice is the error of masters that are not so many servers.
var errTwice = errors.New("a server that is counted twice is no majority")

// doubt looks whether two masters are one server, and has that be the error of an attempt. A claim's token is set on each
// master once: one that has it already, before it was asked, is asked by another name, too. Wherever two votes of one server
// are counted the second says so.
func (l *Locker) doubt(ctx context.Context, a *attempt) bool {
	if a.err = l.distinct(ctx); a.err != nil {
		return true
	}
	l.doubted.Store(false) // a copy of the question came first
	return false
}

// distinct returns an error that names two masters that are one server. Each is to set a token of its own in a key that
// nobody else knows: one that finds the token of another there has the same keys. That needs no more rights than locks do.
// Masters that don't answer are left out, and the same server with two databases has different keys.
func (l *Locker) distinct(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.NodeTimeout)
	defer cancel()
	key, tokens := l.opts.Prefix+":"+rand.Text(), make([]string, len(l.masters))
	answers := make(chan answer, len(l.masters))
	for i, m := range l.masters {
		token := rand.Text()
		tokens[i] = token
		l.keeper.Go(func() {
			a, _ := redislink.Aside(ctx, func(ctx context.Context) (answer, error) {
				return m.acquire(ctx, key, token, l.opts.Lease, wish{}), nil
			})
			answers <- a
		})
	}
	var err error
	for range l.masters {
		a := <-answers
		switch first := slices.Index(tokens, a.holder); {
		case a.said == mine: // until all were asked
			m := l.masters[a.master]
			defer l.keeper.Go(func() { m.release(context.Background(), key, tokens[m.index], l.channel(), "") })
		case a.said == other && first >= 0:
			err = fmt.Errorf("%v and %v are one server: %w", l.masters[first], l.masters[a.master], errTwice)
		}
	}
	return err
}

// String names a master, and its address if that is known.
func (m *master) String() string {
	if address, _ := checkMaster(m.rdb); address != "" {
		return fmt.Sprintf("master %d (%s)", m.index, address)
	}
	return fmt.Sprintf("master %d", m.index)
}
