package pgtest

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"go.uber.org/goleak"

	"github.com/cacheguard/cacheguard/internal/waittest"
)

const (
	patience = waittest.Patience
	moment   = 100 * time.Millisecond // for what must not happen
)

// childEnv makes the test binary a program that starts a server and waits to be killed.
const childEnv = "PGTEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		s, err := NewServer()
		if err != nil {
			fmt.Println("error:", err)
			return
		}
		fmt.Println(s.Addr())
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	goleak.VerifyTestMain(Wrap(m))
}

func connect(t *testing.T, addr string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", URL(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func do(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(within(t, patience), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func one(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(within(t, patience), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}
