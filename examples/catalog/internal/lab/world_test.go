package lab

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	_ "modernc.org/sqlite"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// openWorld returns a world with real servers.
func openWorld(t *testing.T) World {
	t.Helper()
	w := World{Redis: redistest.Shared(t).Addr(), Spare: redistest.Start(t).Addr()}
	for range 3 {
		w.Masters = append(w.Masters, redistest.Start(t).Addr())
	}
	var err error
	w.DB, err = sql.Open("sqlite",
		"file:"+filepath.Join(t.TempDir(), "locks.db")+
			"?_pragma=busy_timeout(60000)&_pragma=synchronous(off)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.DB.Close() })
	if _, err := w.DB.ExecContext(t.Context(), stage.SQLRows); err != nil {
		t.Fatal(err)
	}
	w.ZooKeeper, _, err = zk.Connect([]string{zktest.Shared(t).Addr()}, 10*time.Second,
		zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.ZooKeeper.Close)
	return w
}

type silent struct{}

func (silent) Printf(string, ...any) {}
