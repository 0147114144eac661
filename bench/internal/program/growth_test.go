package program

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

func TestSlope(t *testing.T) {
	rows := []growthRow{
		{Processes: 1, Commands: 11}, {Processes: 2, Commands: 15}, {Processes: 8, Commands: 39},
	}
	if per, fixed := slope(rows); math.Abs(per-4) > 1e-9 || math.Abs(fixed-7) > 1e-9 {
		t.Errorf("%v for each and %v besides, want 4 and 7", per, fixed)
	}
	if per, fixed := slope(rows[:1]); per != 0 || fixed != 11 {
		t.Errorf("of one: %v, %v", per, fixed)
	}
}

// The number of Redis commands of a stampede grows by at most 5 for each process. It doesn't grow
// with callers, nor with processes that take no part. A change causes no traffic for processes of
// other caches.
func TestGrowth(t *testing.T) {
	addr := redistest.Start(t).Addr()
	code, stdout, stderr := bench(t, "growth", "-redis", addr, "-processes", "1,2,4", "-callers",
		"5,100", "-rounds", "3", "-repeat", "1", "-load", "500ms", "-idle", "30", "-json")
	var printed struct {
		ByProcesses, ByCallers []growthRow
		CommandsPerProcess     float64
		Idle                   []idleRow
	}
	if err := json.Unmarshal([]byte(stdout), &printed); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v, stderr %q", code, err, stderr)
	}
	if len(printed.ByProcesses) != 3 || len(printed.ByCallers) != 2 {
		t.Fatalf("%+v", printed)
	}
	for i, r := range printed.ByProcesses {
		if r.Processes != 1<<i || r.Callers != growthCallers || r.Loads != 1 || r.Errors != 0 ||
			len(r.Took.Woken) != 1 || len(r.Floor.First) != 1 {
			t.Errorf("%+v", r)
		}
	}
	if per := printed.CommandsPerProcess; per <= 0 || per > 5 {
		t.Errorf("%v commands for each process, want at most 5", per)
	}
	if len(printed.Idle) != 3 {
		t.Fatalf("%+v", printed.Idle)
	}
	alone, elsewhere, same := printed.Idle[0], printed.Idle[1], printed.Idle[2]
	most := func(bytes int64) int64 { return bytes * 6 / 5 }
	if elsewhere.Elsewhere != 30 || elsewhere.Load > most(alone.Load) ||
		elsewhere.Invalidate > most(alone.Invalidate) {
		t.Errorf("%+v beside another cache, %+v alone", elsewhere, alone)
	}
	if same.Same != 30 || same.Elsewhere != 30 || same.Load > most(alone.Load) ||
		same.Commands > alone.Commands+1 {
		t.Errorf("%+v beside the same cache, %+v alone", same, alone)
	}
	few, lots := printed.ByCallers[0], printed.ByCallers[1]
	if few.Callers != 5 || lots.Callers != 100 || lots.Commands > few.Commands+2 {
		t.Errorf("%+v with few callers, %+v with many", few, lots)
	}
}
