package program

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

func TestHits(t *testing.T) {
	addr := redistest.Start(t).Addr()
	inOneOf(t, 3, func() (wrong []string) {
		code, stdout, stderr := bench(t, "hits", "-redis", addr, "-time", "100ms", "-repeat", "2",
			"-sizes", "100", "-goroutines", "1,4", "-json")
		var printed struct{ Rows []hitsRow }
		if err := json.Unmarshal([]byte(stdout), &printed); code != 0 || err != nil {
			t.Fatalf("exit code %d, %v, stderr %q", code, err, stderr)
		}
		// Three contenders: one goroutine; four on one key; four on four.
		if len(printed.Rows) != 9 {
			t.Fatalf("%+v", printed.Rows)
		}
		for _, r := range printed.Rows {
			if len(r.PerSecond) != 2 || r.PerSecond[0] <= 0 || r.P50[0] <= 0 ||
				r.P99[1] < r.P50[1] || r.Ratio <= 0 {
				t.Errorf("%+v", r)
			}
			if r.Contender == hitsFloor && r.Ratio != 1 {
				t.Errorf("the floor's ratio to itself is %v", r.Ratio)
			}
			if r.Contender == "cacheguard-local" && r.Ratio < 10 { // its hits don't ask Redis
				wrong = append(wrong, fmt.Sprintf("%+v", r))
			}
		}
		return wrong
	})
}

// If a contender loads a cached value or returns a wrong value, the run returns an error instead of
// a row.
func TestHitsOfAContenderThatIsWrong(t *testing.T) {
	addr := redistest.Start(t).Addr()
	for name, want := range map[string]string{
		"forgetful": "loads of a value that is cached", "wrong": "wrong value",
	} {
		code, stdout, stderr := bench(t, "hits", "-redis", addr, "-time", "20ms", "-repeat", "1",
			"-sizes", "100", "-goroutines", "1", "-contenders", name)
		if code != 1 || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want %q", name, code, stdout, stderr,
				want)
		}
	}
}
