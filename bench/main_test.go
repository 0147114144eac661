package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// TestMain makes the test binary a replica when a run has started it as one.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
	}
	os.Exit(redistest.Main(m))
}

// bench runs a command as main does and returns what it prints.
func bench(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// rowOf returns the cells of a table's row, nil if there is none of this name.
func rowOf(table, name string) []string {
	for line := range strings.Lines(table) {
		if cells := strings.Fields(line); len(cells) > 1 && cells[0] == name {
			return cells
		}
	}
	return nil
}

func TestWrongCommandLines(t *testing.T) {
	for _, args := range []string{
		"stampedes", "stampede -rounds 0", "stampede -protections nobody", "stampede more", "stampede -load -1s",
	} {
		if code, _, stderr := bench(t, strings.Fields(args)...); code != 2 || stderr == "" {
			t.Errorf("bench %s: exit code %d, want 2; stderr %q", args, code, stderr)
		}
	}
}

func TestStampede(t *testing.T) {
	addr := redistest.Start(t).Addr()
	code, stdout, stderr := bench(t, "stampede", "-redis", addr, "-processes", "2", "-callers", "5", "-rounds", "1",
		"-repeat", "1", "-load", "20ms", "-protections", "flight,cacheguard")
	if row := rowOf(stdout, "cacheguard"); code != 0 || row == nil || row[1] != "1" || row[2] != "0" {
		t.Errorf("exit code %d, stderr %q, stdout:\n%s", code, stderr, stdout)
	}
}
