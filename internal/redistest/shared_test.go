package redistest

import (
	"errors"
	"testing"
)

func TestSharedIsOneEmptyServerThatKeepsScripts(t *testing.T) {
	s := Shared(t)
	ctx, rdb := testContext(t), newClient(t, s.Addr())
	if err := rdb.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	hash, err := rdb.ScriptLoad(ctx, "return 1").Result()
	if err != nil {
		t.Fatal(err)
	}
	if again := Shared(t); again != s {
		t.Fatal("a second server")
	}
	wantValue(t, s, "k", "")
	if there, err := rdb.ScriptExists(ctx, hash).Result(); err != nil || !there[0] {
		t.Errorf("the script is gone: %v, %v", there, err)
	}
}

func TestSharedComesBackFromAnything(t *testing.T) {
	s := Shared(t)
	s.Kill()
	wantValue(t, Shared(t), "k", "")
	if err := s.Pause(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	wantValue(t, Shared(t), "k", "")
}

type runs func() int

func (r runs) Run() int { return r() }

func TestMainStopsTheSharedServer(t *testing.T) {
	s := Shared(t)
	if code := Main(runs(func() int { return 7 })); code != 7 {
		t.Errorf("exit code %d, want that of the tests", code)
	}
	if s.Pid() != 0 {
		t.Error("the shared server still runs")
	}
	if code := Main(runs(func() int { return 0 })); code != 0 {
		t.Errorf("without a shared server: exit code %d", code)
	}
}
