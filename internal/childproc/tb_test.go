package childproc

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

var _ TB = testing.TB(nil)

// A program that imports this package must not get the flags of go test.
func TestOnlyTestsImportTesting(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := file.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range parsed.Imports {
			if path := imported.Path.Value; strings.HasPrefix(path, `"testing`) {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}

// verdict is a TB that notes what it is told and goes on.
type verdict struct{ skipped, failed string }

func (*verdict) Helper()                             {}
func (*verdict) Name() string                        { return "TestX" }
func (*verdict) Cleanup(func())                      {}
func (v *verdict) Skipf(format string, args ...any)  { v.skipped = fmt.Sprintf(format, args...) }
func (v *verdict) Fatalf(format string, args ...any) { v.failed = fmt.Sprintf(format, args...) }
func (v *verdict) Errorf(format string, args ...any) { v.failed = fmt.Sprintf(format, args...) }

func TestMissingSkipsOrFails(t *testing.T) {
	for env, fails := range map[string]bool{"": false, "quick": false, "fullish": false, "full": true, "soak": true, "full, soak": true} {
		t.Setenv("CACHEGUARD_TEST", env)
		var v verdict
		Missing(&v, "needs a server", "there is none")
		if (v.failed != "") != fails || (v.skipped != "") == fails {
			t.Errorf("%q: skipped %q, failed %q", env, v.skipped, v.failed)
		}
		said := v.skipped + v.failed
		if !strings.Contains(said, "TestX") || !strings.Contains(said, "needs a server") || !strings.Contains(said, "there is none") {
			t.Errorf("%q: says %q", env, said)
		}
	}
}

func TestFullAndSoak(t *testing.T) {
	for env, want := range map[string][2]bool{
		"":          {false, false},
		"full":      {true, false},
		"soak":      {true, true},
		"full,soak": {true, true},
		"carefully": {false, false},
	} {
		t.Setenv("CACHEGUARD_TEST", env)
		if got := [2]bool{Full(), Soak()}; got != want {
			t.Errorf("%q: full, soak = %v, want %v", env, got, want)
		}
	}
}
