package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// The comparison fails if the median ratio of a contender to its floor has grown by more than the
// tolerance. It also fails if a contender is missing.
func TestCompare(t *testing.T) {
	file := func(ratios string) string {
		name := filepath.Join(t.TempDir(), "ratios.json")
		if err := os.WriteFile(name, []byte(`{"ratios": [`+ratios+`]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	one := func(name, floor, each string) string {
		return `{"name": "` + name + `", "floor": "` + floor + `", "each": [` + each + `]}`
	}
	before := file(one("a", "none", "1.1, 1.3, 1.2") + "," + one("b", "none", "2"))
	for _, c := range []struct {
		name, after, says string
		code              int
	}{
		{"the same", before, "1.20 (1.10-1.30)", 0},
		{
			"within the tolerance",
			file(one("a", "none", "1.3, 1.3, 9") + "," + one("b", "none", "1")), "", 0,
		},
		{
			"beyond the tolerance",
			file(one("a", "none", "1.4, 1.4, 1") + "," + one("b", "none", "2")), "worse", 1,
		},
		{"missing", file(one("a", "none", "1.2")), "has no ratio", 1},
		{
			"another floor", file(one("a", "none", "1.2") + "," + one("b", "otter", "2")),
			"has no ratio", 1,
		},
		{"none", file(""), "has no ratios", 1},
		{"no run", file(one("a", "none", "")), "has no ratios", 1},
		{"no file", before + ".gone", "no such file", 1},
	} {
		code, stdout, stderr := bench(t, "compare", before, c.after)
		if code != c.code || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("%s: exit code %d, %q, %q; want %d, %q", c.name, code, stdout, stderr, c.code,
				c.says)
		}
	}
}

// The JSON of hits and of a scenario contains the ratios to their floors.
func TestRatiosArePrinted(t *testing.T) {
	addr := redistest.Start(t).Addr()
	for args, name := range map[string]string{
		"hits -time 20ms -repeat 2 -sizes 100 -goroutines 1 -contenders none,cacheguard -json":            "hit of 100 B, 1 goroutines, 1 keys, 1 a call: cacheguard",
		"hits -many 3 -time 20ms -repeat 2 -sizes 100 -goroutines 1 -contenders none,cacheguard -json":    "hit of 100 B, 1 goroutines, 3 keys, 3 a call: cacheguard",
		"cold -processes 2 -callers 2 -rounds 1 -repeat 2 -load 10ms -contenders singleflight,none -json": "cold, p99 without the load, 2x2: none",
	} {
		code, stdout, stderr := bench(t, append(strings.Fields(args), "-redis", addr)...)
		file := filepath.Join(t.TempDir(), "ratios.json")
		if err := os.WriteFile(file, []byte(stdout), 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := readRatios(file)
		if code != 0 || err != nil || len(all) != 1 || all[0].Name != name ||
			len(all[0].Each) != 2 || all[0].Each[0] <= 0 {
			t.Errorf("%s: %d, %v, %+v, %s", args, code, err, all, stderr)
		}
	}
	if code, _, stderr := bench(t, "hits", "-redis", addr, "-many", "2", "-time", "20ms", "-repeat",
		"1", "-sizes", "100", "-contenders", "stage-watchdog"); code != 1 ||
		!strings.Contains(stderr, "no call for many keys") {
		t.Errorf("a contender without it: %d, %s", code, stderr)
	}
}
