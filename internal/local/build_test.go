package local

import (
	"os/exec"
	"strings"
	"testing"
)

// TestOtterIsCompiledOnce: a program compiles nothing of otter for the types of its values. If the
// compiler sees otter's type in what a program imports, it compiles 170 kB of otter's code again,
// in each package that uses a cache.
func TestOtterIsCompiledOnce(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("skipped: %v", err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-S", "-o", t.TempDir(),
		"./testdata/user").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	functions := 0
	for line := range strings.Lines(string(out)) {
		name, _, ok := strings.Cut(line, " STEXT ")
		if !ok {
			continue
		}
		functions++
		if strings.Contains(name, "maypok86/otter") {
			t.Fatalf("compiles %s", name)
		}
	}
	if functions == 0 {
		t.Fatalf("no function is compiled:\n%s", out)
	}
}
