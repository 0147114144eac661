package pgtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/waittest"
)

func TestProxyPassesCutsAndSwallows(t *testing.T) {
	p := StartProxy(t, Shared(t).Addr())
	db := connect(t, p.Addr())
	if n := one(t, db, "SELECT 1"); n != 1 {
		t.Errorf("got %d", n)
	}
	p.Blackhole(true)
	if err := db.PingContext(within(t, moment)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("in the blackhole: %v", err)
	}
	p.Blackhole(false)
	if n := one(t, db, "SELECT 2"); n != 2 {
		t.Errorf("got %d", n)
	}

	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p.Cut()
	if _, err := conn.ExecContext(within(t, patience), "SELECT 3"); err == nil ||
		errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("on a connection that was cut: %v", err)
	}
	one(t, db, "SELECT 4")
}

func TestProxyLosesAReply(t *testing.T) {
	s := Shared(t)
	direct := connect(t, s.Addr())
	do(t, direct, "DROP TABLE IF EXISTS lost", "CREATE TABLE lost (n int)")
	p := StartProxy(t, s.Addr())
	db := connect(t, p.Addr())
	one(t, db, "SELECT 1")

	lost := p.LoseReply(Executes)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(ctx, "INSERT INTO lost VALUES ($1)", 1)
		ended <- err
	}()
	waittest.Next(t, "the reply", lost)
	if n := one(t, direct, "SELECT count(*) FROM lost"); n != 1 {
		t.Errorf("it was carried out %d times", n)
	}
	select {
	case err := <-ended:
		t.Errorf("without a reply: %v", err)
	case <-time.After(moment):
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("without a reply: %v", err)
	}
	one(t, db, "SELECT 1") // on another connection
}
