package redistest

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

var (
	_ TB     = testing.TB(nil)
	_ Runner = (*testing.M)(nil)
)

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

func TestMissingServerSkipsOrFails(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for env, fails := range map[string]bool{
		"": false, "quick": false, "fullish": false,
		"full": true, "soak": true, "other,full": true, "full, soak": true,
	} {
		t.Run(env, func(t *testing.T) {
			t.Setenv("CACHEGUARD_TEST", env)
			var v verdict
			if s := Start(&v); s != nil {
				t.Fatal("a server without a binary")
			}
			if (v.failed != "") != fails || (v.skipped != "") == fails {
				t.Errorf("skipped %q, failed %q", v.skipped, v.failed)
			}
			if said := v.skipped + v.failed; !strings.Contains(said, "TestX") || strings.Contains(said, "\n") {
				t.Errorf("says %q", said)
			}
		})
	}
}
